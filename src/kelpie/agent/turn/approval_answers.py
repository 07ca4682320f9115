"""Start of a turn in a conversation that waits for approvals or client results, or no longer does.

A plain message is refused while calls wait. Answers are matched with the calls; answers that came before are a repeated
request: the client gets the outcome of the first, and nothing runs twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.events.turn_events import MessageCommitted, TurnEnded, TurnOpened
from kelpie.agent.live.live_agent import LiveConversation
from kelpie.agent.tool_calls import approval_matching
from kelpie.agent.tool_calls.call_plan import CallDecisions, RefusedCall, plan
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import ApprovalDecision, CallAnswer, Message, Role, ToolReturn
from kelpie.core.conversations.runs import Run, RunStatus, StopReason
from kelpie.core.errors import InvalidInput, NotFound
from kelpie.core.ids import MessageId
from kelpie.core.permissions.budgets import BUDGET_KEY
from kelpie.core.tools.tools import Tool
from kelpie.storage.conversations import approvals as rows
from kelpie.storage.conversations import contexts, messages
from kelpie.storage.runs import runs, unfinished
from kelpie.storage.runs.input import RunInput
from kelpie.world.database import Database, Tx

REPLAYS_KEPT = 20  # answers that are still recognised when they come again


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The start of a turn: its input, the calls it has waited for until now, and its rows of earlier runs."""

    input: RunInput
    waited: PendingCalls | None = None
    rows: Sequence[Message] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    """A turn that has run before: its events are only emitted again."""

    run: Run
    rows: Sequence[Message]

    @property
    def stop_reason(self) -> StopReason:
        assert self.run.stop_reason is not None
        return self.run.stop_reason

    def emit(self, stream: TurnStream) -> None:
        run = self.run
        stream.emit(TurnOpened(run.id, run.created_at))
        for row in self.rows:
            if row.is_reply or row.role is Role.tool:
                stream.emit(MessageCommitted(row))
        reason, detail, budget = self.stop_reason, run.stop_detail, run.metadata.get(BUDGET_KEY)
        stream.emit(TurnEnded(run.id, reason, run.usage, run.step_count, None, detail=detail, budget=budget))


async def waiting(database: Database, conversation: LiveConversation) -> PendingCalls | None:
    """The calls that a conversation waits for; read only when its context is not in memory."""
    if conversation.context is not None:
        return conversation.context.pending
    return await database.read(lambda tx: rows.get(tx, conversation.agent.id, conversation.conversation))


async def begin(database: Database, conversation: LiveConversation, sent: RunInput) -> TurnStart | Replay:
    """The start of a turn with this input. Raises PendingApproval, InvalidInput, StorageError."""
    pending = await waiting(database, conversation)
    if not sent.answers:
        if pending is not None:
            raise approval_matching.refuse_while(pending)
        return TurnStart(sent)
    if pending is None:
        return await database.read(lambda tx: _again(tx, conversation, sent))
    said = await database.read(lambda tx: messages.of_runs(tx, pending.runs))
    request = next((row for row in said if row.id == pending.request), None)
    if request is None:  # emptied since it was looked up
        raise nothing_waits()
    answers = approval_matching.fitting(pending, request, sent.answers, partial=sent.partial)
    _check_changed(conversation, request, said, answers)
    return TurnStart(replace(sent, answers=answers, request=request.id, earlier=pending.runs), pending, said)


def nothing_waits() -> InvalidInput:
    return InvalidInput(
        "approvals", "No tool call is currently awaiting approval in this conversation. Send a message instead."
    )


def _check_changed(
    conversation: LiveConversation, request: Message, said: Sequence[Message], answers: Sequence[CallAnswer]
) -> None:
    """Raises InvalidInput for arguments that a person has changed into something the tool does not take, and for
    answers that do not fit its questions."""
    asked = {call.id for call in request.tool_calls if call.questions is not None}
    changed = {
        answer.call_id
        for answer in answers
        if isinstance(answer, ApprovalDecision)
        and answer.approve
        and (answer.arguments is not None or answer.call_id in asked)
    }
    if not changed:
        return
    earlier = [row for row in said if row.step_id != request.step_id]
    decisions = CallDecisions(by_call={answer.call_id: answer for answer in answers})
    tools, exits = conversation.loaded.tools, conversation.exits
    for each in plan(request.tool_calls, conversation.agent, tools, _nothing, earlier, exits, decisions):
        call_id = each.parsed.call.id
        if call_id in changed and isinstance(each, RefusedCall) and each.untried:
            problem = "lacks an answer" if call_id in asked else "cannot run with the changed arguments"
            raise InvalidInput("arguments", f"{call_id} {problem}: {each.text}")


def _nothing(tool: Tool) -> None:
    """No runner: the calls are only checked."""


def _again(tx: Tx, conversation: LiveConversation, sent: RunInput) -> TurnStart | Replay:
    """The start with answers when nothing waits: a repeated request, or refused. Raises InvalidInput."""
    for row in messages.answering(tx, conversation.agent.id, REPLAYS_KEPT):
        if row.run_id is None or (row.conversation_id or "") != conversation.conversation:
            continue
        try:
            run, first = runs.get(tx, row.run_id), unfinished.given(tx, row.run_id)
        except NotFound:  # its record was deleted
            continue
        if all(_known(answer, first) for answer in sent.answers):
            return _repeated(tx, conversation, sent, run, first)
    raise nothing_waits()


def _known(answer: CallAnswer, first: RunInput) -> bool:
    """True if a run had this very answer; one to the whole request stands for one to each call."""
    if isinstance(answer, ApprovalDecision) and answer.call_id in ("", first.request):
        return bool(first.answers) and all(_same(replace(answer, call_id=one.call_id), one) for one in first.answers)
    return any(_same(answer, one) for one in first.answers)


def _same(one: CallAnswer, other: CallAnswer) -> bool:
    if one.call_id != other.call_id:
        return False
    if isinstance(one, ApprovalDecision) and isinstance(other, ApprovalDecision):
        return (one.approve, one.arguments) == (other.approve, other.arguments)
    if isinstance(one, ToolReturn) and isinstance(other, ToolReturn):
        return (one.ok, one.text) == (other.ok, other.text)
    return False


def _repeated(tx: Tx, conversation: LiveConversation, sent: RunInput, run: Run, first: RunInput) -> TurnStart | Replay:
    """The same answers once more: a replay, or a continuation if the first run failed, and so did what continued it."""
    said, plain = messages.of_run(tx, run.id), replace(sent, answers=(), partial=False)
    if sent.messages and sent.messages != first.messages:
        return TurnStart(plain)
    if run.status is not RunStatus.failed:
        return Replay(run, said)
    last, given = run, first
    newest = contexts.ids(tx, conversation.agent.id, conversation.conversation)[-1:]
    if newest != tuple(row.id for row in said[-1:]):
        last, given = _continuation(tx, run, newest)
        if last.status is not RunStatus.failed:
            return Replay(last, messages.of_run(tx, last.id))
    earlier = (*given.earlier, last.id)[-approval_matching.RUNS_MAX :]
    left = plain if run.step_count == last.step_count == 0 else replace(plain, messages=())
    return TurnStart(replace(left, earlier=earlier), None, messages.of_runs(tx, earlier))


def _continuation(tx: Tx, run: Run, newest: Sequence[MessageId]) -> tuple[Run, RunInput]:
    """The run of the newest message, if it has continued this one for the same answers. Raises InvalidInput."""
    for row in messages.get_many(tx, newest):
        if row.run_id is None:
            continue
        try:
            later, given = runs.get(tx, row.run_id), unfinished.given(tx, row.run_id)
        except NotFound:  # its record was deleted
            continue
        if run.id in given.earlier and not given.answers:
            return later, given
    raise nothing_waits()  # the conversation has gone on since
