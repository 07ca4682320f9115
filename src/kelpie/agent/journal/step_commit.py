"""Writing a step into the journal: a reply, results, or both, and with the last of them the end of the turn.

Transactional tools run inside the commit, so their effect and their recorded result are one; whether the turn ends is
decided inside it too, so the last step and the end are one.
"""

from collections.abc import Sequence
from dataclasses import replace

from kelpie.agent.companions import schedule as companion_schedule
from kelpie.agent.definition import loaded_agent
from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.events import event_recorder
from kelpie.agent.events.committed_events import told
from kelpie.agent.events.turn_events import MessageCommitted
from kelpie.agent.journal import call_records
from kelpie.agent.journal import commits as journal
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.journal.entries import CallAnswer, CommitResult, StepEntry
from kelpie.agent.journal.message_rows import nudge_row, said_in, tool_row
from kelpie.agent.journal.run_endings import ended, finish, is_gone
from kelpie.agent.prompt.agent_types import spec_for, spec_of
from kelpie.agent.prompt.synthetic_results import cancelled, paused
from kelpie.agent.prompt.wellformed_history import left_open
from kelpie.agent.tool_calls.execution import run_inside, since
from kelpie.agent.tool_calls.tool_rules import made_in
from kelpie.agent.tool_calls.turn_end import Decision, decide, ruled
from kelpie.core.conversations.messages import Message, ToolReturn
from kelpie.core.conversations.runs import UNFINISHED, Run, StepStatus, StopReason
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.permissions.call_records import ResourceUse
from kelpie.storage.conversations import approvals, messages
from kelpie.storage.runs import runs, steps, tool_calls, traces
from kelpie.tools.calls.interface import CallContext
from kelpie.world.database import Database, Tx


async def write_step(
    database: Database, position: JournalPosition, loaded: AgentSnapshot, write: StepEntry
) -> CommitResult:
    """A reply, or results, or both; ends the run when the turn is over. Raises StorageError."""
    return await journal.commit(
        database,
        position,
        write.kind,
        write.at,
        lambda tx: _write(tx, position, loaded, write),
        lambda tx: _recall(tx, position, loaded, write),
    )


def _write(tx: Tx, position: JournalPosition, loaded: AgentSnapshot, write: StepEntry) -> CommitResult:
    run = position.run
    if is_gone(tx, run) or (position.rests_on_history and not messages.has_run(tx, run.id)):
        return _cut_short(tx, position, loaded, write)
    if write.waited and not approvals.move(tx, write.waited, write.waits):
        return _cut_short(tx, position, loaded, write)
    rows, touched, begun = list(write.rows), list[AgentId](), list[Run]()
    answered, timed, ends_turn = _answer_all(tx, write, _context(loaded, run, write), touched, begun)
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
    _record_step(tx, write, decision.stop, loaded.agent.organization_id)
    calls = call_records.of_answers(loaded.agent.organization_id, run, write.step_id, write.at, timed)
    tool_calls.add(tx, calls)
    now, cleared = loaded_agent.refresh(tx, loaded), False
    said = _said(rows, write, loaded) if run.background else ()
    if decision.stop is not None:
        run = replace(ended(run, decision.stop, write.at), stop_detail=decision.detail)
        work = companion_schedule.NOTHING
        if now.agent.enable_sleeptime and ends_turn is None and not (write.ending and write.ending.paused):
            work = companion_schedule.after_turn(tx, now.agent, run, write.chain, position.conversation)
            begun += work.begun
        cleared = finish(tx, run, now.agent, position.conversation, write.record, said, work.run_ids) or work.trimmed
    else:
        runs.progress(tx, run)
        if write.record is not None:
            event_recorder.keep(tx, run, write.record, said, write.at)
    others = tuple(dict.fromkeys(touched))
    return CommitResult(tuple(rows), run, now, decision.stop, others, cleared, tuple(begun), write.waits, calls)


def _context(loaded: AgentSnapshot, run: Run, write: StepEntry) -> CallContext:
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
        working_memory=write.working_memory,
    )


def _said(rows: Sequence[Message], write: StepEntry, loaded: AgentSnapshot) -> Sequence[MessageCommitted]:
    heartbeats = spec_for(loaded.agent).heartbeats
    return told(rows, write.nudge_id, previewed=write.previewed, heartbeats=heartbeats)


def _record_step(tx: Tx, write: StepEntry, stop: StopReason | None, organization: OrganizationId) -> None:
    """The record of the model call; the step that a turn ends with tells why it ended."""
    if write.step is not None:
        steps.add(tx, write.step if stop is None else replace(write.step, stop_reason=stop), organization)
        if write.trace is not None:
            traces.add(tx, write.trace, write.step_id, write.at)
    elif stop is not None:
        steps.set_stop(tx, write.step_id, stop)


def _cut_short(tx: Tx, position: JournalPosition, loaded: AgentSnapshot, write: StepEntry) -> CommitResult:
    """Ends a turn whose history or conversation was deleted while it ran: what it would say next makes no sense alone.

    The history of a deleted conversation stays, and so its calls get their results.
    """
    run, now = ended(position.run, StopReason.cancelled, write.at), loaded_agent.refresh(tx, loaded)
    if write.step is not None:  # what was said is dropped; what it cost is not
        stopped = replace(write.step, status=StepStatus.cancelled, stop_reason=StopReason.cancelled)
        steps.add(tx, stopped, loaded.agent.organization_id)
    rows = _last_results(tx, run, write)
    messages.append(tx, rows)
    tool_calls.add(tx, call_records.of_orphans(loaded.agent.organization_id, run, rows, write.at))
    said = _said(rows, write, loaded) if run.background else ()
    finish(tx, run, now.agent, position.conversation, write.record, said)
    return CommitResult(rows, run, now, StopReason.cancelled, cleared=True, calls=None)


def _last_results(tx: Tx, run: Run, write: StepEntry) -> tuple[Message, ...]:
    """A row for the calls that are still open in the history: with what was done outside, or that nothing was."""
    left = left_open(messages.of_run(tx, run.id))
    if left is None:
        return ()
    done = {answer.planned.call.id: answer.done for answer in write.answers}
    results = tuple(done.get(call.id) or cancelled(call) for call in left[1])
    return (tool_row(run, write.tool_row_id, write.step_id, results, write.at),)


def _recall(tx: Tx, position: JournalPosition, loaded: AgentSnapshot, write: StepEntry) -> CommitResult:
    ids = [*(row.id for row in write.rows), write.tool_row_id, write.nudge_id]
    run = runs.get(tx, position.run.id)
    stop = None if run.status in UNFINISHED else run.stop_reason
    # Whom it touched and whether it cleared the context is not known: the database has said that it was in doubt, so
    # everybody looks again; calling the context cleared only makes the next turn read it once more.
    known = {row.id: row for row in write.rows}  # they were said, even if the history was emptied since
    found = known | {row.id: row for row in messages.get_many(tx, ids)}
    rows = tuple(found[i] for i in ids if i in found)
    now = loaded_agent.refresh(tx, loaded)
    begun = (
        companion_schedule.begun_after(tx, now.agent, run) if stop is not None and now.agent.enable_sleeptime else ()
    )
    waits = approvals.get(tx, position.run.agent_id, position.conversation) if write.waits else None
    return CommitResult(rows, run, now, stop, (), stop is not None, begun, waits, None)


def _answer_all(
    tx: Tx, write: StepEntry, context: CallContext, touched: list[AgentId], begun: list[Run]
) -> tuple[list[ToolReturn], list[tuple[CallAnswer, ToolReturn, ResourceUse]], str | None]:
    """The results, what each answered call took, and our reason if one of the calls ended the turn: then those after
    it are not made."""
    results, timed, ends_turn = list[ToolReturn](), list[tuple[CallAnswer, ToolReturn, ResourceUse]](), None
    for answer in write.answers:
        took = answer.took
        if answer.done is not None:
            result = answer.done
        elif ends_turn is not None:
            result = paused(answer.planned.call)
        else:
            call = replace(
                context, fresh_uuid=answer.uuid, tool=answer.planned.call.name, insight=answer.planned.insight
            )
            began = write.ticks()
            result, outcome = run_inside(tx, answer.planned, call)
            took = ResourceUse(since(began, write.ticks))
            if outcome is not None:
                touched += outcome.touched
                begun += outcome.begun
                ends_turn = outcome.ends_turn
        results.append(result)
        timed.append((answer, result, took))
    return results + [paused(call) for call in write.left if ends_turn is not None], timed, ends_turn


def _decide(loaded: AgentSnapshot, write: StepEntry, rows: Sequence[Message]) -> Decision:
    if write.waits is not None:
        return Decision(StopReason.requires_approval)
    if (ending := write.ending) is None:
        return Decision(None)
    if write.cancelled:
        return Decision(StopReason.cancelled)
    rules, spec = loaded.agent.tool_rules, spec_of(loaded.agent.agent_type)
    names = (*(tool.name for tool in loaded.tools if tool.name not in ending.barred), *ending.client)
    asked = ruled(spec, rules, names, (*ending.made, *made_in(rows)))
    decision = decide(spec, rules, ending.calls, ending.finish_reason, ending.steps_left, asked, paused=ending.paused)
    goes_on = ending.more and ending.steps_left > 0 and decision.stop in (StopReason.end_turn, StopReason.tool_rule)
    return Decision(None) if goes_on else decision
