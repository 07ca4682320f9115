"""The course of a turn: where it stands, what it has said, and how that is committed and ended.

Every commit goes through here, so that memory and listener know of it exactly what the database does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kelpie.agent.compaction.window_guard import Ended, WindowGuard
from kelpie.agent.companions import schedule as companion_schedule
from kelpie.agent.events.cancellation import Cancelled
from kelpie.agent.events.committed_events import told
from kelpie.agent.events.turn_events import MessageCommitted, TurnEnded
from kelpie.agent.events.turn_sink import TurnSink
from kelpie.agent.journal import run_endings, step_commit
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.journal.entries import CommitResult, StepEntry
from kelpie.agent.journal.message_rows import answered_by, described, reason_for, reply_row, step_record, tool_row
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.live.spending import BudgetExhausted, book
from kelpie.agent.prompt.synthetic_results import cancelled
from kelpie.agent.prompt.wellformed_history import left_open
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.agent.turn.model_call import ModelCallResult
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import Message, Usage
from kelpie.core.conversations.runs import Run, RunStatus, Step, StepStatus, StopReason
from kelpie.core.errors import KelpieError, ModelError, StorageError
from kelpie.core.ids import MessageId, RunId, StepId
from kelpie.core.permissions.budgets import BUDGET_KEY
from kelpie.core.permissions.policies import EffectivePermissions
from kelpie.observe import logs
from kelpie.sandbox.port import UsageMeter
from kelpie.storage.runs.input import RunInput
from kelpie.storage.runs.traces import NewTrace

_log = logs.get("agent")


class TurnState:
    """One turn of one conversation, as far as it has come."""

    def __init__(
        self,
        equipment: TurnDependencies,
        hot: LiveAgent,
        lane: LiveConversation,
        position: JournalPosition,
        given: RunInput,
        turn: TurnSink,
        *,
        deltas: bool = False,
        said: Sequence[Message] = (),  # what the history has of the turn already
        waited: PendingCalls | None = None,  # what the turn has waited for until now
    ) -> None:
        self._equipment = equipment
        self._world = equipment.world
        self._hot = hot
        self._lane = lane
        self._position = position
        self._given = given
        self._turn = turn
        self._deltas = deltas
        self._waiting: tuple[Message, ...] = ()  # the input, until the first step takes it into the history
        self._context_tokens: int | None = None
        self._step_usage = Usage()  # of the latest step
        self._room = WindowGuard(equipment.world, equipment.models, hot, lane, turn)
        self._said = list(said)  # the rows of the turn, which the tool rules go by
        self._waited = waited
        self._client = frozenset(tool.name for tool in given.client_tools)
        self._meters: Mapping[str, UsageMeter] = {}  # of the calls that ran last, by their ids

    # --- a commit -------------------------------------------------------------------------------------------------

    async def _commit(self, write: StepEntry) -> bool:
        """One commit of a step; afterwards memory and listener know what it wrote. True when the turn goes on."""
        write = replace(write, record=await self._turn.enclose(self._context_tokens))
        committed = await step_commit.write_step(self._world.database, self._position, self._lane.loaded, write)
        self._waiting = ()
        book(self._hot, write.step, committed.calls)
        self._take_in(committed)
        self._turn.sealed(ended=committed.stop is not None)
        heartbeats = self._lane.spec.heartbeats
        for event in told(committed.rows, write.nudge_id, previewed=write.previewed, heartbeats=heartbeats):
            self._turn.emit(event)
        goes_on = committed.stop is None
        try:
            if write.ending is not None and (goes_on or committed.run.status is RunStatus.completed):
                await self._tidy(write.step_id, goes_on=goes_on)
        finally:
            if not goes_on:
                self._tell_end(committed.run, None, companion_schedule.run_ids(committed.begun))
        return goes_on

    def _take_in(self, committed: CommitResult) -> None:
        lane, agent_id = self._lane, self._hot.claim.agent_id
        self._position = self._position.after(committed.run)
        if committed.loaded is not lane.loaded:
            lane.loaded = committed.loaded
            self._equipment.pauses.until(lane.agent)  # a pause that has just begun is timed from now on
        self._said += committed.rows
        if committed.cleared:
            lane.reread()
        elif lane.context is not None:
            lane.context.extend(committed.rows, lane.spec)
            lane.context.pending = committed.waits
        if agent_id in committed.touched:
            self._hot.touch(knows=lane)
        if others := [a for a in committed.touched if a != agent_id]:
            self._equipment.touched(others)
        if committed.begun:
            self._equipment.summon(committed.begun)

    async def _tidy(self, step_id: StepId, *, goes_on: bool) -> None:
        """Compacts a context that the step has filled. After the turn's end nothing that goes wrong there matters to
        whoever waits for it: its answer is committed, and the next turn looks again. Raises StorageError."""
        try:
            step = Ended(step_id, self._step_usage, goes_on)
            self._position, left = await self._room.after_step(self._position, step)
            if left is not None and self._context_tokens is not None:
                self._context_tokens = left
        except Cancelled:
            return  # the next step is not begun
        except StorageError as error:
            if goes_on:
                raise
            self._lane.forget()
            _log.warning("compaction_failed", "Context could not be compacted after a turn", error=str(error))

    # --- the end -------------------------------------------------------------------------------------------------

    async def _fail(self, error: ModelError | Cancelled) -> None:
        """Ends the turn because the model gave no usable answer; what was committed before stays."""
        step_id = self._world.ids.new(StepId)
        if isinstance(error, Cancelled):
            step = self._record(step_id, StepStatus.cancelled)
            await self._end(StopReason.cancelled, replace(step, stop_reason=StopReason.cancelled))
            return
        reason, told = reason_for(error), described(error)
        step = replace(self._record(step_id, StepStatus.failed), stop_reason=reason, error=told)
        run = self._position.run
        self._position = replace(self._position, run=replace(run, metadata={**run.metadata, "error": told}))
        await self._end(reason, step, error)

    async def _run_dry(self, error: BudgetExhausted) -> None:
        """Ends the turn because the agent has nothing left to spend; what was committed before stays."""
        run = self._position.run
        metadata = {**run.metadata, BUDGET_KEY: error.told}
        self._position = replace(self._position, run=replace(run, metadata=metadata, stop_detail=error.detail))
        await self._end(StopReason.insufficient_credits)

    async def _end(self, reason: StopReason, step: Step | None = None, error: KelpieError | None = None) -> None:
        run = run_endings.ended(self._position.run, reason, self._world.clock.now())
        orphans = self._cancelled_calls(run) if reason is StopReason.cancelled else ()
        record = await self._turn.enclose(self._context_tokens)
        cleared = await run_endings.close_turn(
            self._world.database, self._position, run, orphans, step, self._lane.loaded, record, self._meters
        )
        if cleared or orphans:
            self._lane.reread()
        book(self._hot, step, None if orphans else ())
        self._position = self._position.after(run)
        for row in orphans:
            self._turn.emit(MessageCommitted(row))
        self._tell_end(run, error)

    def _cancelled_calls(self, run: Run) -> tuple[Message, ...]:
        """The row that answers the calls which a cancelled turn leaves open, if it leaves any."""
        left = left_open(self._said) if self._waited is None else None  # what still waits is left to whom it waits for
        if left is None:
            return ()
        reply, calls = left
        results = tuple(cancelled(call) for call in calls)
        return (tool_row(run, self._world.ids.new(MessageId), reply.step_id, results, self._world.clock.now()),)

    def _tell_end(self, run: Run, error: KelpieError | None, begun: tuple[RunId, ...] = ()) -> None:
        assert run.stop_reason is not None
        if self._lane.agent.facts is not None:
            self._equipment.learn()
        tokens, usage, budget = self._context_tokens, run.usage, run.metadata.get(BUDGET_KEY)
        reason, detail = run.stop_reason, run.stop_detail
        self._turn.emit(TurnEnded(run.id, reason, usage, run.step_count, tokens, error, detail, begun, budget))

    # --- small things --------------------------------------------------------------------------------------------

    def _bounds(self) -> EffectivePermissions:
        """What the agent may do, as its last commit knew it."""
        return self._lane.bounds(self._equipment.policy)

    def _record(self, step_id: StepId, status: StepStatus) -> Step:
        return step_record(self._position.run, self._lane.agent, step_id, status, self._world.clock.now())

    def _write(self, kind: str, step_id: StepId, **fields: Any) -> StepEntry:
        ids, now = self._world.ids, self._world.clock.now()
        fields["block_rules"] = self._equipment.block_rules
        fields["working_memory"] = self._equipment.working_memory
        fields["ticks"] = self._world.clock.monotonic_ns
        fields["cancelled"] = self._turn.cancellation.wished
        fields["chain"], fields["group_id"] = self._given.chain, self._given.group_id
        return StepEntry(kind, now, step_id, ids.new(MessageId), ids.new(MessageId), **fields)

    def _count(self, asked: ModelCallResult) -> None:
        run, usage = self._position.run, asked.reply.usage
        ttft = run.ttft_ns if run.ttft_ns is not None else asked.first_ns
        run = replace(run, usage=run.usage + usage, step_count=run.step_count + 1, ttft_ns=ttft)
        self._position = replace(self._position, run=run)
        self._context_tokens = None if self._lane.spec.heartbeats else usage.total_tokens
        self._step_usage = usage
        self._room.counted(usage)

    def _reply(self, asked: ModelCallResult) -> Message:
        return reply_row(
            self._position.run,
            asked.message_id,
            asked.step_id,
            asked.reply,
            inner_thoughts=self._lane.speaks_in_calls,
            at=asked.at,
        )

    def _asked_step(self, asked: ModelCallResult, status: StepStatus) -> Step:
        return replace(
            answered_by(self._record(asked.step_id, status), asked.reply),
            usage=asked.reply.usage,
            model_endpoint=self._endpoint(asked.reply.answered_by),
            llm_ns=asked.total_ns,
            step_ns=asked.total_ns,
        )

    def _endpoint(self, answered_by: str | None) -> str | None:
        info = self._equipment.models.known(answered_by or self._lane.agent.model.handle)
        return info.endpoint if info else None

    def _trace(self, asked: ModelCallResult) -> NewTrace | None:
        tracing, exchanged = self._equipment.tracing, asked.reply.exchanged
        if tracing is None or exchanged is None:
            return None
        return NewTrace(tracing, exchanged.sent, exchanged.received)
