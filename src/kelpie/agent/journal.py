"""The journal of a turn: every commit moves the fence, takes the next number of the turn, and writes what happened.

A commit is one pure function over a transaction. Transactional tools run inside it, so their effect and their recorded
result are one; the decision whether the turn ends is made inside it too, so the last step and the end are one. What is
returned was committed. A commit whose outcome is unknown is looked up by its number instead of being written twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kelpie.agent import recording, sleeptime, state
from kelpie.agent.calls import Planned, cancelled, paused, run_inside
from kelpie.agent.events import MessageCommitted, TurnEvent
from kelpie.agent.history import left_open
from kelpie.agent.recording import Record
from kelpie.agent.rows import nudge_row, said_in, tool_row
from kelpie.agent.rules import Made, made_in
from kelpie.agent.state import Loaded
from kelpie.agent.stop import Called, Decision, decide, ruled
from kelpie.agent.telling import told
from kelpie.agent.types import spec_for, spec_of
from kelpie.core.agents import Agent
from kelpie.core.approvals import Pending
from kelpie.core.blocks import DEFAULT_RULES, BlockRules
from kelpie.core.chains import UNCHAINED, Chain
from kelpie.core.errors import CommitUnknown, StorageBusy, StorageError
from kelpie.core.ids import AgentId, MessageId, OrganizationId, RunId, StepId
from kelpie.core.messages import Message, Role, ToolCall, ToolReturn
from kelpie.core.runs import UNFINISHED, Run, Step, StepStatus, StopReason, status_for
from kelpie.core.time import Micros
from kelpie.storage import (
    agents,
    approvals,
    conversations,
    heads,
    journal_keys,
    messages,
    run_otids,
    runs,
    steps,
    traces,
)
from kelpie.storage.heads import Claim
from kelpie.storage.run_input import Given
from kelpie.storage.traces import NewTrace
from kelpie.tools.port import CallContext
from kelpie.world.database import Database, Tx

T = TypeVar("T")
ATTEMPTS_MAX = 3


@dataclass(frozen=True, slots=True)
class Position:
    """Where a turn stands: its run so far, and the number of its next commit."""

    claim: Claim
    run: Run
    number: int = 0
    conversation: str = ""

    @property
    def rests_on_history(self) -> bool:
        """Whether a step of the turn is in the history already; its first commit only opens it."""
        return self.number > 1

    def after(self, run: Run) -> "Position":
        return replace(self, run=run, number=self.number + 1)


@dataclass(frozen=True, slots=True)
class Answer:
    """A call to be answered in a commit: inside it, or with what it gave back outside."""

    planned: Planned
    uuid: str  # for a row the call may make
    done: ToolReturn | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """What decides whether the turn goes on; known with the last commit of a step."""

    calls: tuple[Called, ...]
    finish_reason: str
    steps_left: int
    made: tuple[Made, ...] = ()  # the calls of the turn before those that this commit answers
    paused: bool = False  # the agent rests and is not sent on by heartbeats
    more: bool = False  # something was said after the answers to these calls, and wants an answer itself
    client: tuple[str, ...] = ()  # the tools that the client runs


@dataclass(frozen=True, slots=True)
class Write:
    """One commit within a step. All ids and times are drawn beforehand, so that the commit is pure."""

    kind: str
    at: Micros
    step_id: StepId
    tool_row_id: MessageId
    nudge_id: MessageId
    rows: tuple[Message, ...] = ()  # what is known already: the input, the reply
    step: Step | None = None
    answers: tuple[Answer, ...] = ()
    left: tuple[ToolCall, ...] = ()  # the calls of the reply that come after those
    ending: Ending | None = None
    trace: NewTrace | None = None  # of the model call that the step is about
    block_rules: BlockRules = DEFAULT_RULES  # for the calls
    cancelled: bool = False  # the turn was cancelled while what this records was done: it ends here
    chain: Chain = UNCHAINED  # of agents behind the turn
    group_id: str | None = None  # the group that the turn speaks in
    previewed: bool = False  # the reply went out as deltas
    record: Record | None = None  # of a background run: what its stream has to keep with this commit
    waited: Pending | None = None  # what the conversation has waited for until now
    waits: Pending | None = None  # and what it waits for when this is committed, which ends the turn


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit wrote, and how agent and turn stand after it."""

    rows: tuple[Message, ...]
    run: Run
    loaded: Loaded
    stop: StopReason | None
    touched: tuple[AgentId, ...] = ()
    cleared: bool = False  # the turn is over and has left what the model sees of the conversation
    begun: tuple[Run, ...] = ()  # runs of other agents that the commit wrote down
    waits: Pending | None = None


async def commit(
    database: Database,
    position: Position,
    kind: str,
    at: Micros,
    body: Callable[[Tx], T],
    recall: Callable[[Tx], T],
) -> T:
    """Runs body as one numbered commit of the turn.

    A transient refusal is tried again a few times. An unknown outcome is looked up by its number, and if the commit is
    in, `recall` reads back what it did. Raises StorageError.
    """
    run = position.run

    def numbered(tx: Tx) -> T:
        heads.advance(tx, position.claim)
        journal_keys.add(tx, position.claim, run.id, position.number, kind, at)
        return body(tx)

    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return await database.transact(numbered)
        except StorageBusy:
            if attempt == ATTEMPTS_MAX:
                raise
        except CommitUnknown as unknown:
            try:
                if await database.read(lambda tx: journal_keys.has(tx, run.agent_id, run.id, position.number)):
                    return await database.read(recall)
            except StorageError as error:  # it stays unknown, and only that keeps a client from sending it again
                raise unknown from error
            if attempt == ATTEMPTS_MAX:
                raise
    raise AssertionError("unreachable: the loop returns or raises")


async def open_turn(database: Database, position: Position, loaded: Loaded, given: Given) -> None:
    """The first commit of a turn: the run and its input, which is not history yet. Raises StorageError."""
    organization = loaded.agent.organization_id

    def body(tx: Tx) -> None:
        runs.open_run(tx, position.run, organization, given, position.claim.node)
        if given.otids:
            run_otids.add(tx, position.run.agent_id, position.run.id, given.otids)

    await commit(database, position, "open", position.run.created_at, body, lambda tx: None)


async def take_up(database: Database, position: Position, given: Given) -> bool:
    """The first commit of a turn whose run was waiting for its lane. False when the run has ended in the meantime."""
    claim, run = position.claim, position.run

    def body(tx: Tx) -> bool:
        if given.request is not None or given.earlier:  # answers, which were matched with what waits only now
            runs.regive(tx, run.id, given)
        return runs.take_up(tx, run.id, claim.node)

    return await commit(database, position, "open", run.created_at, body, lambda tx: True)


async def write_step(database: Database, position: Position, loaded: Loaded, write: Write) -> Committed:
    """A reply, or results, or both; ends the run when the turn is over. Raises StorageError."""
    return await commit(
        database,
        position,
        write.kind,
        write.at,
        lambda tx: _write(tx, position, loaded, write),
        lambda tx: _recall(tx, position, loaded, write),
    )


def _write(tx: Tx, position: Position, loaded: Loaded, write: Write) -> Committed:
    run = position.run
    if _is_gone(tx, run) or (position.rests_on_history and not messages.has_run(tx, run.id)):
        return _cut_short(tx, position, loaded, write)
    if write.waited and not approvals.move(tx, write.waited, write.waits):
        return _cut_short(tx, position, loaded, write)
    rows, touched, begun = list(write.rows), list[AgentId](), list[Run]()
    answered, ends_turn = _answer_all(tx, write, _context(loaded, run, write), touched, begun)
    if answered:
        ran = [answer.planned.call.name for answer in write.answers if not answer.planned.done]
        rows.append(tool_row(run, write.tool_row_id, write.step_id, tuple(answered), write.at, ran))
    decision = _decide(loaded, write, rows) if ends_turn is None else Decision(StopReason.end_turn, detail=ends_turn)
    if decision.nudge is not None:
        rows.append(nudge_row(run, write.nudge_id, write.step_id, decision.nudge, write.at))
    if write.group_id is not None:
        rows = said_in(write.group_id, rows)
    if answering := [row for row in rows if row.answers]:  # which the model is never shown
        messages.append(tx, answering)
    messages.append(tx, [row for row in rows if not row.answers], position.conversation)
    if not write.waited and write.waits:
        approvals.move(tx, None, write.waits)
    _write_step(tx, write, decision.stop, loaded.agent.organization_id)
    if answered:
        ran = (a.planned.tool.id for a in write.answers if a.planned.tool and a.planned.refusal is None)
        runs.add_tools(tx, run.id, ran)
    now, cleared = state.refresh(tx, loaded), False
    said = _said(rows, write, loaded) if run.background else ()
    if decision.stop is not None:
        run = replace(ended(run, decision.stop, write.at), stop_detail=decision.detail)
        work = sleeptime.NOTHING
        if now.agent.enable_sleeptime and ends_turn is None and not (write.ending and write.ending.paused):
            work = sleeptime.after_turn(tx, now.agent, run, write.chain, position.conversation)
            begun += work.begun
        cleared = finish(tx, run, now.agent, position.conversation, write.record, said, work.run_ids) or work.trimmed
    else:
        runs.progress(tx, run)
        if write.record is not None:
            recording.keep(tx, run, write.record, said, write.at)
    others = tuple(dict.fromkeys(touched))
    return Committed(tuple(rows), run, now, decision.stop, others, cleared, tuple(begun), write.waits)


def _context(loaded: Loaded, run: Run, write: Write) -> CallContext:
    return CallContext(
        loaded.agent,
        write.at,
        "",
        run.conversation_id,
        write.rows,
        write.block_rules,
        write.chain,
        run_id=run.id,
        step_id=write.step_id,
    )


def _said(rows: Sequence[Message], write: Write, loaded: Loaded) -> Sequence[MessageCommitted]:
    heartbeats = spec_for(loaded.agent).heartbeats
    return told(rows, write.nudge_id, previewed=write.previewed, heartbeats=heartbeats)


def _write_step(tx: Tx, write: Write, stop: StopReason | None, organization: OrganizationId) -> None:
    """The record of the model call; the step that a turn ends with tells why it ended."""
    if write.step is not None:
        steps.add(tx, write.step if stop is None else replace(write.step, stop_reason=stop), organization)
        if write.trace is not None:
            traces.add(tx, write.trace, write.step_id, write.at)
    elif stop is not None:
        steps.set_stop(tx, write.step_id, stop)


def _cut_short(tx: Tx, position: Position, loaded: Loaded, write: Write) -> Committed:
    """Ends a turn whose history or conversation was deleted while it ran: what it would say next makes no sense alone.

    The history of a deleted conversation stays, and so its calls get their results.
    """
    run, now = ended(position.run, StopReason.cancelled, write.at), state.refresh(tx, loaded)
    if write.step is not None:  # what was said is dropped; what it cost is not
        stopped = replace(write.step, status=StepStatus.cancelled, stop_reason=StopReason.cancelled)
        steps.add(tx, stopped, loaded.agent.organization_id)
    rows = _last_results(tx, run, write)
    messages.append(tx, rows)
    said = _said(rows, write, loaded) if run.background else ()
    finish(tx, run, now.agent, position.conversation, write.record, said)
    return Committed(rows, run, now, StopReason.cancelled, cleared=True)


def _last_results(tx: Tx, run: Run, write: Write) -> tuple[Message, ...]:
    """A row for the calls that are still open in the history: with what was done outside, or that nothing was."""
    left = left_open(messages.of_run(tx, run.id))
    if left is None:
        return ()
    done = {answer.planned.call.id: answer.done for answer in write.answers}
    results = tuple(done.get(call.id) or cancelled(call) for call in left[1])
    return (tool_row(run, write.tool_row_id, write.step_id, results, write.at),)


def _is_gone(tx: Tx, run: Run) -> bool:
    """Whether the conversation that a turn runs in was deleted; the default one goes with its agent only."""
    return run.conversation_id is not None and not conversations.is_live(tx, run.conversation_id)


def _recall(tx: Tx, position: Position, loaded: Loaded, write: Write) -> Committed:
    ids = [*(row.id for row in write.rows), write.tool_row_id, write.nudge_id]
    run = runs.get(tx, position.run.id)
    stop = None if run.status in UNFINISHED else run.stop_reason
    # Whom it touched and whether it cleared the context is not known: the database has said that it was in doubt, so
    # everybody looks again; calling the context cleared only makes the next turn read it once more.
    known = {row.id: row for row in write.rows}  # they were said, even if the history was emptied since
    found = known | {row.id: row for row in messages.get_many(tx, ids)}
    rows = tuple(found[i] for i in ids if i in found)
    now = state.refresh(tx, loaded)
    begun = sleeptime.begun_after(tx, now.agent, run) if stop is not None and now.agent.enable_sleeptime else ()
    waits = approvals.get(tx, position.run.agent_id, position.conversation) if write.waits else None
    return Committed(rows, run, now, stop, (), stop is not None, begun, waits)


def _answer_all(
    tx: Tx, write: Write, context: CallContext, touched: list[AgentId], begun: list[Run]
) -> tuple[list[ToolReturn], str | None]:
    """The results, and our reason if one of the calls ended the turn: then those after it are not made."""
    results, ends_turn = list[ToolReturn](), None
    for answer in write.answers:
        if answer.done is not None:
            results.append(answer.done)
        elif ends_turn is not None:
            results.append(paused(answer.planned.call))
        else:
            call = replace(context, fresh_uuid=answer.uuid, tool=answer.planned.call.name)
            given_back, outcome = run_inside(tx, answer.planned, call)
            results.append(given_back)
            if outcome is not None:
                touched += outcome.touched
                begun += outcome.begun
                ends_turn = outcome.ends_turn
    return results + [paused(call) for call in write.left if ends_turn is not None], ends_turn


def _decide(loaded: Loaded, write: Write, rows: Sequence[Message]) -> Decision:
    if write.waits is not None:
        return Decision(StopReason.requires_approval)
    if (ending := write.ending) is None:
        return Decision(None)
    if write.cancelled:
        return Decision(StopReason.cancelled)
    rules, spec = loaded.agent.tool_rules, spec_of(loaded.agent.agent_type)
    names = (*(tool.name for tool in loaded.tools), *ending.client)
    asked = ruled(spec, rules, names, (*ending.made, *made_in(rows)))
    decision = decide(spec, rules, ending.calls, ending.finish_reason, ending.steps_left, asked, paused=ending.paused)
    goes_on = ending.more and ending.steps_left > 0 and decision.stop in (StopReason.end_turn, StopReason.tool_rule)
    return Decision(None) if goes_on else decision


async def close_turn(
    database: Database,
    position: Position,
    run: Run,
    orphans: Sequence[Message],
    step: Step | None,
    loaded: Loaded,
    record: Record | None = None,
) -> bool:
    """Ends a run that did not get to its end by itself, answering any call it left open. Raises StorageError.

    True when what the model sees of the conversation must be read again.
    """

    def body(tx: Tx) -> bool:
        if messages.has_run(tx, run.id):  # else the calls are gone, and with them the need for results
            messages.append(tx, orphans, None if _is_gone(tx, run) else position.conversation)
        if step is not None:
            steps.add(tx, step, loaded.agent.organization_id)
        said = [MessageCommitted(row) for row in orphans]
        return finish(tx, run, state.refresh(tx, loaded).agent, position.conversation, record, said)

    assert run.completed_at is not None
    return await commit(database, position, "close", run.completed_at, body, lambda tx: True)


def ended(run: Run, reason: StopReason, at: Micros) -> Run:
    """The run as it is once it has stopped."""
    return replace(
        run,
        status=status_for(reason),
        stop_reason=reason,
        completed_at=at,
        total_duration_ns=max(0, at - run.created_at) * 1000,
    )


def finish(
    tx: Tx,
    run: Run,
    agent: Agent,
    conversation: str,
    record: Record | None = None,
    said: Sequence[TurnEvent] = (),
    begun: Sequence[RunId] = (),
) -> bool:
    """Records an ended run, on itself and on its agent; clears the context if the agent asks for that, and tells so.

    The stream of a background run gets its end here: what its last commit said, and why it stopped.
    A turn that waits for somebody is not over: its context stays until it is.
    """
    assert run.stop_reason is not None and run.completed_at is not None
    runs.finish(tx, run)
    if run.background:
        recording.keep_end(tx, run, record, said, begun)
    duration_ms = (run.total_duration_ns or 0) // 1_000_000
    agents.record_run(tx, run.agent_id, run.completed_at, duration_ms, run.stop_reason)
    if conversation:
        conversations.record_run(tx, conversation, run.completed_at)
    clears = agent.message_buffer_autoclear and run.stop_reason is not StopReason.requires_approval
    if clears:
        _clear_context(tx, agent.id, conversation)
    return clears


def finish_waiting(tx: Tx, run: Run) -> None:
    """Records the end of a run that never came to its lane: nothing of the agent has changed by it."""
    runs.finish(tx, run)
    if run.background:
        recording.keep_end(tx, run, None, ())


def _clear_context(tx: Tx, agent_id: AgentId, conversation: str) -> None:
    """Leaves the model the system message and nothing else; the history keeps everything."""
    first = messages.get_many(tx, messages.context_ids(tx, agent_id, conversation)[:1])
    kept = [message.id for message in first if message.role is Role.system]
    messages.replace_context(tx, agent_id, kept, conversation)
