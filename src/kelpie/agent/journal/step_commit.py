"""Commit of a step: a reply, results, or both, and with the last of them the end of the turn.

Transactional tools run inside the commit, so their effect and their recorded result are one; whether the turn ends is
decided inside it too, so the last step and the end are one.
"""

from collections.abc import Sequence
from dataclasses import replace

from kelpie.agent.companions import schedule as companion_schedule
from kelpie.agent.definition import loaded_agent
from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.events import event_recorder
from kelpie.agent.events.turn_events import MessageCommitted, committed_events
from kelpie.agent.journal import commits as journal
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.journal.entries import CallToAnswer, CommitResult, StepEntry
from kelpie.agent.journal.message_rows import call_records, nudge_row, tool_row, with_group
from kelpie.agent.journal.run_endings import ended, finish, is_gone, orphan_records
from kelpie.agent.prompt.agent_types import spec_of
from kelpie.agent.prompt.synthetic_results import cancelled, paused
from kelpie.agent.prompt.wellformed_history import left_open
from kelpie.agent.tool_calls.call_plan import AnsweredCall, TransactionalCall
from kelpie.agent.tool_calls.execution import run_inside, since
from kelpie.agent.tool_calls.tool_rules import made_in
from kelpie.agent.tool_calls.turn_end import Decision, decide, ruled
from kelpie.core.conversations.messages import Message, ToolReturn
from kelpie.core.conversations.runs import UNFINISHED, Run, StepStatus, StopReason
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.permissions.call_records import ResourceUse
from kelpie.storage.conversations import approvals, messages
from kelpie.storage.runs import runs, steps, tool_calls, traces
from kelpie.tools.calls.interface import NOTHING, CallContext
from kelpie.world.database import Database, Tx


async def write_step(
    database: Database, position: JournalPosition, loaded: AgentSnapshot, entry: StepEntry
) -> CommitResult:
    """A reply, or results, or both; ends the run when the turn is over. Raises StorageError."""
    return await journal.commit(
        database,
        position,
        entry.kind,
        entry.frame.at,
        lambda tx: _write(tx, position, loaded, entry),
        lambda tx: _recall(tx, position, loaded, entry),
    )


def _write(tx: Tx, position: JournalPosition, loaded: AgentSnapshot, entry: StepEntry) -> CommitResult:
    run, frame = position.run, entry.frame
    if is_gone(tx, run) or (position.rests_on_history and not messages.has_run(tx, run.id)):
        return _cut_short(tx, position, loaded, entry)
    if entry.waited and not approvals.move(tx, entry.waited, entry.waits):
        return _cut_short(tx, position, loaded, entry)
    rows, touched, begun = list(entry.rows), list[AgentId](), list[Run]()
    answered, timed, ends_turn = _answer_all(tx, entry, _context(loaded, run, entry), touched, begun)
    if answered:
        ran = [each.planned.parsed.call.name for each in entry.calls if not isinstance(each.planned, AnsweredCall)]
        rows.append(tool_row(run, frame.tool_row_id, frame.step_id, tuple(answered), frame.at, ran))
    decision = _decide(loaded, entry, rows) if ends_turn is None else Decision(StopReason.end_turn, detail=ends_turn)
    if entry.asks is not None:
        rows.append(entry.asks)
    if decision.nudge is not None:
        rows.append(nudge_row(run, frame.nudge_id, frame.step_id, decision.nudge, frame.at))
    if frame.group_id is not None:
        rows = with_group(frame.group_id, rows)
    if answering := [row for row in rows if row.answers]:  # which the model is never shown
        messages.append(tx, answering)
    messages.append(tx, [row for row in rows if not row.answers], position.conversation)
    if not entry.waited and entry.waits:
        approvals.move(tx, None, entry.waits)
    _record_step(tx, run, entry, decision.stop, loaded.agent.organization_id)
    calls = call_records(loaded.agent.organization_id, run, frame.step_id, frame.at, timed)
    tool_calls.add(tx, calls)
    now, cleared = loaded_agent.refresh(tx, loaded), False
    events = _events(rows, entry, loaded)
    if decision.stop is not None:
        run = replace(ended(run, decision.stop, frame.at), stop_detail=decision.detail)
        companions, trimmed = (), False
        if now.agent.enable_sleeptime and ends_turn is None and not (entry.ending and entry.ending.paused):
            work = companion_schedule.after_turn(tx, now.agent, run, frame.chain, position.conversation)
            begun += work.begun
            companions, trimmed = work.run_ids, work.trimmed
        cleared = finish(tx, run, now.agent, position.conversation, entry.events, events, companions) or trimmed
    else:
        runs.progress(tx, run)
        if entry.events is not None:
            event_recorder.keep(tx, run, entry.events, events, frame.at)
    others = tuple(dict.fromkeys(touched))
    return CommitResult(tuple(rows), run, now, decision.stop, events, others, cleared, tuple(begun), entry.waits, calls)


def _context(loaded: AgentSnapshot, run: Run, entry: StepEntry) -> CallContext:
    frame = entry.frame
    return CallContext(
        loaded.agent,
        frame.at,
        "",
        run.conversation_id,
        entry.rows,
        frame.block_rules,
        frame.chain,
        run_id=run.id,
        step_id=frame.step_id,
        working_memory=frame.working_memory,
    )


def _events(rows: Sequence[Message], entry: StepEntry, loaded: AgentSnapshot) -> tuple[MessageCommitted, ...]:
    previewed = entry.model is not None and entry.model.previewed
    heartbeats = spec_of(loaded.agent.agent_type).heartbeats
    return committed_events(rows, entry.frame.nudge_id, previewed=previewed, heartbeats=heartbeats)


def _record_step(tx: Tx, run: Run, entry: StepEntry, stop: StopReason | None, organization: OrganizationId) -> None:
    """The record of the model call; the last step of a turn has the stop reason."""
    if (model := entry.model) is not None:
        steps.add(tx, model.step if stop is None else replace(model.step, stop_reason=stop), organization)
        if model.trace is not None:
            traces.add(tx, [model.trace], model.traces_kept)
    elif stop is not None:
        steps.set_stop(tx, entry.frame.step_id, run.id, stop)


def _cut_short(tx: Tx, position: JournalPosition, loaded: AgentSnapshot, entry: StepEntry) -> CommitResult:
    """Ends a turn whose history or conversation was deleted while it ran: what it would say next makes no sense alone.

    The history of a deleted conversation stays, and so its calls get their results.
    """
    run, now = ended(position.run, StopReason.cancelled, entry.frame.at), loaded_agent.refresh(tx, loaded)
    if entry.model is not None:  # the reply is dropped; what it cost is not
        stopped = replace(entry.model.step, status=StepStatus.cancelled, stop_reason=StopReason.cancelled)
        steps.add(tx, stopped, loaded.agent.organization_id)
    rows = _last_results(tx, run, entry)
    messages.append(tx, rows)
    tool_calls.add(tx, orphan_records(loaded.agent.organization_id, run, rows, entry.frame.at))
    events = _events(rows, entry, loaded)
    finish(tx, run, now.agent, position.conversation, entry.events, events)
    return CommitResult(rows, run, now, StopReason.cancelled, events, cleared=True, calls=None)


def _last_results(tx: Tx, run: Run, entry: StepEntry) -> tuple[Message, ...]:
    """A row for the calls that are still open in the history: with what was done outside, or that nothing was."""
    left = left_open(messages.of_run(tx, run.id))
    if left is None:
        return ()
    done = {each.planned.parsed.call.id: each.result for each in entry.calls}
    results = tuple(done.get(call.id) or cancelled(call) for call in left[1])
    return (tool_row(run, entry.frame.tool_row_id, entry.frame.step_id, results, entry.frame.at),)


def _recall(tx: Tx, position: JournalPosition, loaded: AgentSnapshot, entry: StepEntry) -> CommitResult:
    asked = () if entry.asks is None else (entry.asks.id,)
    ids = [*(row.id for row in entry.rows), entry.frame.tool_row_id, *asked, entry.frame.nudge_id]
    run = runs.get(tx, position.run.id)
    stop = None if run.status in UNFINISHED else run.stop_reason
    # The agents it touched and whether it cleared the context are unknown. After a commit of unknown outcome all agents
    # reload; calling the context cleared only makes the next turn read it again.
    # Committed, even if the history was emptied since; unless that was found in the commit, which wrote none of them.
    known = {} if stop is StopReason.cancelled else {row.id: row for row in entry.rows}
    found = known | {row.id: row for row in messages.get_many(tx, ids)}
    rows = tuple(found[i] for i in ids if i in found)
    now = loaded_agent.refresh(tx, loaded)
    begun = (
        companion_schedule.begun_after(tx, now.agent, run) if stop is not None and now.agent.enable_sleeptime else ()
    )
    waits = approvals.get(tx, position.run.agent_id, position.conversation) if entry.waits else None
    events = _events(rows, entry, loaded)
    return CommitResult(rows, run, now, stop, events, (), stop is not None, begun, waits, None)


def _answer_all(
    tx: Tx, entry: StepEntry, context: CallContext, touched: list[AgentId], begun: list[Run]
) -> tuple[list[ToolReturn], list[tuple[CallToAnswer, ToolReturn, ResourceUse]], str | None]:
    """The results, what each answered call used, and the reason if one of the calls ended the turn: then those after
    it are not made."""
    results, timed, ends_turn = list[ToolReturn](), list[tuple[CallToAnswer, ToolReturn, ResourceUse]](), None
    ticks = entry.frame.ticks
    for each in entry.calls:
        used, planned = each.used, each.planned
        if each.result is not None:
            result = each.result
        elif ends_turn is not None:
            result = paused(planned.parsed.call)
        else:
            precomputed = planned.precomputed if isinstance(planned, TransactionalCall) else NOTHING
            call = replace(context, fresh_uuid=each.uuid, tool=planned.parsed.call.name, precomputed=precomputed)
            began = ticks()
            result, outcome = run_inside(tx, planned, call)
            used = ResourceUse(since(began, ticks))
            if outcome is not None:
                touched += outcome.touched
                begun += outcome.begun
                ends_turn = outcome.ends_turn
        results.append(result)
        timed.append((each, result, used))
    return results + [paused(call) for call in entry.left if ends_turn is not None], timed, ends_turn


def _decide(loaded: AgentSnapshot, entry: StepEntry, rows: Sequence[Message]) -> Decision:
    if entry.waits is not None:
        return Decision(StopReason.requires_approval)
    if (ending := entry.ending) is None:
        return Decision(None)
    if entry.frame.cancelled:
        return Decision(StopReason.cancelled)
    rules, spec = loaded.agent.tool_rules, spec_of(loaded.agent.agent_type)
    names = (*(tool.name for tool in loaded.tools if tool.name not in ending.denied), *ending.client)
    asked = ruled(spec, rules, names, (*ending.made, *made_in(rows)))
    decision = decide(spec, rules, ending.calls, ending.finish_reason, ending.steps_left, asked, paused=ending.paused)
    goes_on = ending.more and ending.steps_left > 0 and decision.stop in (StopReason.end_turn, StopReason.tool_rule)
    return Decision(None) if goes_on else decision
