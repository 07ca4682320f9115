"""Commits of a turn: a step is written, its result taken into memory, and its events emitted; the turn is closed.

Every commit of a turn after its opening is made here or by the window guard, so that memory and clients know exactly
what the database does.
"""

from dataclasses import replace

from kelpie.agent.compaction.window_guard import EndedStep, WindowGuard
from kelpie.agent.companions import schedule as companion_schedule
from kelpie.agent.events.cancellation import Cancelled
from kelpie.agent.events.turn_events import MessageCommitted, TurnEnded
from kelpie.agent.journal import run_endings, step_commit
from kelpie.agent.journal.entries import CommitResult, EntryFrame, StepEntry
from kelpie.agent.journal.message_rows import described, reason_for, step_record, tool_row
from kelpie.agent.live.spending import BudgetExhausted, record_usage
from kelpie.agent.prompt.synthetic_results import cancelled
from kelpie.agent.prompt.wellformed_history import left_open
from kelpie.agent.turn.turn_state import TurnState
from kelpie.core.conversations.messages import Message
from kelpie.core.conversations.runs import Run, RunStatus, Step, StepStatus, StopReason, Trace
from kelpie.core.errors import KelpieError, ModelError, StorageError
from kelpie.core.ids import MessageId, RunId, StepId
from kelpie.core.permissions.budgets import BUDGET_KEY
from kelpie.observe import logs

_log = logs.get("agent")


class StepCommitter:
    """Commits the steps of one turn and closes it."""

    def __init__(self, state: TurnState, guard: WindowGuard) -> None:
        self._state = state
        self._guard = guard
        self._world = state.dependencies.world

    def frame(self, step_id: StepId) -> EntryFrame:
        """Frame that every journal entry needs; draws its ids and its time."""
        state, now, ids = self._state, self._world.clock.now(), self._world.ids
        return EntryFrame(
            now,
            step_id,
            ids.new(MessageId),
            ids.new(MessageId),
            state.sink.cancellation.requested,
            state.input.chain,
            state.input.group_id,
            state.dependencies.block_rules,
            state.dependencies.working_memory,
            self._world.clock.monotonic_ns,
        )

    async def commit(self, entry: StepEntry) -> bool:
        """One commit of a step. True when the turn continues. Raises StorageError."""
        state, sink = self._state, self._state.sink
        later = self._trace_for_later(entry)
        model = entry.model if entry.model is None or later is None else replace(entry.model, trace=None)
        entry = replace(entry, events=await sink.enclose(state.context_tokens), model=model)
        reads = state.live.usage_reads
        result = await step_commit.write_step(self._world.database, state.position, state.conversation.loaded, entry)
        if later is not None and state.dependencies.traces is not None:
            state.dependencies.traces.put(later)
        record_usage(state.live, reads, entry.model.step if entry.model else None, result.calls)
        self._take_in(result)
        continues = result.stop is None
        sink.sealed(ended=not continues)
        for event in result.events:
            sink.emit(event)
        try:
            if entry.ending is not None and (continues or result.run.status is RunStatus.completed):
                await self._compact_if_full(entry.frame.step_id, continues=continues)
        finally:
            if not continues:
                begun = companion_schedule.run_ids(result.begun) if result.begun else ()
                self._emit_end(result.run, None, begun)
        return continues

    def _trace_for_later(self, entry: StepEntry) -> Trace | None:
        """The trace of the entry, unless it must be written with the step because too many wait already."""
        traces = self._state.dependencies.traces
        trace = None if entry.model is None else entry.model.trace
        return trace if trace is not None and traces is not None and traces.has_room(trace) else None

    def _take_in(self, result: CommitResult) -> None:
        """Brings what is in memory up to date with a commit."""
        state, conversation, dependencies = self._state, self._state.conversation, self._state.dependencies
        state.committed(result.run, result.rows)
        if result.loaded is not conversation.loaded:
            conversation.renew(result.loaded)
            dependencies.pauses.until(conversation.agent)  # a pause that has just begun is timed from now on
        if result.cleared:
            conversation.reread()
        elif conversation.context is not None:
            conversation.context.extend(result.rows, conversation.spec)
            conversation.context.pending = result.waits
        if result.touched:
            agent_id = state.live.claim.agent_id
            if agent_id in result.touched:
                state.live.touch(knows=conversation)
            if others := [each for each in result.touched if each != agent_id]:
                dependencies.live_agents.reload(others)
        if result.begun:
            dependencies.live_agents.enqueue(result.begun)

    async def _compact_if_full(self, step_id: StepId, *, continues: bool) -> None:
        """Compacts a context that the step has filled. After the end of the turn a failure does not matter to the
        client: the answer is committed, and the next turn checks again. Raises StorageError."""
        state = self._state
        try:
            step = EndedStep(step_id, state.step_usage, continues)
            compacted = await self._guard.after_step(state.position, step)
        except Cancelled:
            return  # the next step does not begin
        except StorageError as error:
            if continues:
                raise
            state.conversation.forget()
            _log.warning("compaction_failed", "Context could not be compacted after a turn", error=str(error))
            return
        if compacted is not None:
            state.compacted()
            if state.context_tokens is not None:
                state.context_tokens = compacted.stats.context_tokens_after

    # --- the end ---------------------------------------------------------------------------------------------------

    async def fail(self, error: ModelError | Cancelled) -> None:
        """Ends the turn because the model gave no usable reply; earlier commits stay. Raises StorageError."""
        state, step_id = self._state, self._world.ids.new(StepId)
        if isinstance(error, Cancelled):
            step = self._step(step_id, StepStatus.cancelled)
            await self.end(StopReason.cancelled, replace(step, stop_reason=StopReason.cancelled))
            return
        reason, described_error = reason_for(error), described(error)
        step = replace(self._step(step_id, StepStatus.failed), stop_reason=reason, error=described_error)
        state.failed(described_error)
        await self.end(reason, step, error)

    async def end_without_budget(self, error: BudgetExhausted) -> None:
        """Ends the turn because nothing is left to spend; earlier commits stay. Raises StorageError."""
        self._state.out_of_budget(error.report, error.detail)
        await self.end(StopReason.insufficient_credits)

    async def end(self, reason: StopReason, step: Step | None = None, error: KelpieError | None = None) -> None:
        """Closes the turn; a cancelled one answers the calls that it leaves open. Raises StorageError."""
        state, conversation = self._state, self._state.conversation
        run = run_endings.ended(state.run, reason, self._world.clock.now())
        orphans = self._cancelled_calls(run) if reason is StopReason.cancelled else ()
        events = await state.sink.enclose(state.context_tokens)
        database, loaded, reads = self._world.database, conversation.loaded, state.live.usage_reads
        cleared, kept = await run_endings.close_turn(
            database, state.position, run, orphans, step, loaded, events, state.meters
        )
        if cleared or orphans:
            conversation.reread()
        record_usage(state.live, reads, step, None if orphans else ())
        state.ended(run)
        for row in kept:
            state.sink.emit(MessageCommitted(row))
        self._emit_end(run, error)

    def _step(self, step_id: StepId, status: StepStatus) -> Step:
        """The record of a step without a reply."""
        state = self._state
        return step_record(state.run, state.conversation.agent, step_id, status, self._world.clock.now())

    def _cancelled_calls(self, run: Run) -> tuple[Message, ...]:
        """The row that answers the calls which a cancelled turn leaves open, if it leaves any."""
        state = self._state
        left = left_open(state.rows) if state.waited is None else None  # calls that wait for answers go on waiting
        if left is None:
            return ()
        reply, calls = left
        results = tuple(cancelled(call) for call in calls)
        return (tool_row(run, self._world.ids.new(MessageId), reply.step_id, results, self._world.clock.now()),)

    def _emit_end(self, run: Run, error: KelpieError | None, begun: tuple[RunId, ...] = ()) -> None:
        assert run.stop_reason is not None
        state = self._state
        if state.conversation.agent.facts is not None:
            state.dependencies.fact_extractor.wake()
        tokens, usage, budget = state.context_tokens, run.usage, run.metadata.get(BUDGET_KEY)
        reason, detail = run.stop_reason, run.stop_detail
        state.sink.emit(TurnEnded(run.id, reason, usage, run.step_count, tokens, error, detail, begun, budget))
