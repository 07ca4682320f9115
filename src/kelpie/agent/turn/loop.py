"""The turn: ask the model, answer its calls, commit, until there is a reason to stop. One loop for every agent type.

It works on what is in memory; every commit returns the newest settings and blocks. A turn that fails ends with a stop
reason, never half-way.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from kelpie.actors.interruption import Interruption
from kelpie.agent.compaction.window_guard import Room, WindowGuard
from kelpie.agent.events.cancellation import Cancelled
from kelpie.agent.events.turn_events import TurnOpened
from kelpie.agent.events.turn_sink import TurnSink
from kelpie.agent.journal import commits as journal
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.journal.entries import ModelRecord
from kelpie.agent.journal.message_rows import answered_by, input_row, reply_row, step_record
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.live.reload import HistoryDeleted, catch_up
from kelpie.agent.live.spending import BudgetExhausted
from kelpie.agent.prompt.wellformed_history import LeftOpen
from kelpie.agent.turn.approval_answers import TurnStart
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.agent.turn.model_call import ModelCall, ModelCallResult
from kelpie.agent.turn.step_committer import StepCommitter
from kelpie.agent.turn.tool_phase import ToolPhase
from kelpie.agent.turn.turn_state import TurnState
from kelpie.core.conversations.runs import Step, StepStatus, StopReason, Trace
from kelpie.core.errors import ModelError


class Turn:
    """One turn of one conversation, from its position in the journal to its end."""

    def __init__(
        self, state: TurnState, guard: WindowGuard, model: ModelCall, tools: ToolPhase, committer: StepCommitter
    ) -> None:
        self._state = state
        self._guard = guard
        self._model = model
        self._tools = tools
        self._committer = committer
        self._world = state.dependencies.world

    # --- begin -----------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """A new turn: its input is committed while the model works on it. Raises QuotaExceeded, StorageError."""
        state, run = self._state, self._state.run
        state.sink.emit(TurnOpened(run.id, run.created_at))
        opening = journal.open_turn(
            self._world.database,
            state.position,
            state.conversation.loaded,
            state.input,
            state.dependencies.quotas,
        )
        if state.waited is not None or state.input.max_steps <= 0:
            await opening
            state.opened()
            await self._begin_opened()
            return
        self._take_input()
        reply, error = await _while_committing(opening, self._model.ask())
        state.opened()
        if reply is None:
            assert error is not None
            continues = await self._recover_from(error)
        else:
            continues = await self._step(reply)
        if continues:
            await self._run_steps()

    async def begin_queued(self) -> None:
        """A turn whose run was stored before it could begin. Raises StorageError."""
        if await journal.open_queued(self._world.database, self._state.position, self._state.input):
            self._state.opened()
            await self._begin_opened()

    async def resume(self, left: LeftOpen | None) -> None:
        """Continues a turn that a crash interrupted, beginning with the calls it left open. Raises StorageError."""
        if left is not None and not await self._tools.answer_interrupted(*left):
            return
        if self._state.run.step_count == 0:
            await self._begin_opened()
        else:
            await self._run_steps()

    async def _begin_opened(self) -> None:
        """A turn that is opened and has no step yet. Raises StorageError."""
        state = self._state
        if state.waited is not None:
            try:
                state.sink.cancellation.check()
                await catch_up(self._world.database, state.conversation, state.position)
            except (HistoryDeleted, Cancelled):
                await self._committer.end(StopReason.cancelled)
                return
            if not await self._tools.take_answers(state.waited):
                return
        elif state.input.max_steps <= 0:
            await self._committer.end(StopReason.end_turn)
            return
        self._take_input()
        await self._run_steps()

    def _take_input(self) -> None:
        run, ids = self._state.run, self._world.ids
        self._state.new_rows = tuple(input_row(run, message, ids) for message in self._state.input.messages)

    # --- steps -----------------------------------------------------------------------------------------------------

    async def _run_steps(self) -> None:
        """From here to the end, asking the model next. Raises StorageError."""
        continues = True
        while continues:
            try:
                reply = await self._model.ask()
            except (ModelError, Cancelled, HistoryDeleted, BudgetExhausted) as error:
                continues = await self._recover_from(error)
            else:
                continues = await self._step(reply)

    async def _step(self, asked: ModelCallResult) -> bool:
        """Commits a reply and answers its calls. True when the turn continues. Raises StorageError."""
        state, reply = self._state, asked.reply
        try:
            state.sink.cancellation.check()
            planned = await self._tools.plan(reply.tool_calls, state.rows, asked.step_id)
        except Cancelled:  # the reply is dropped; its cost is not
            state.charged(reply.usage)
            step = self._step_of(asked, StepStatus.cancelled)
            await self._committer.end(StopReason.cancelled, replace(step, stop_reason=StopReason.cancelled))
            return False
        state.counted(reply.usage, asked.first_ns)
        state.context_tokens = None if asked.frame.spec.heartbeats else reply.usage.total_tokens
        self._guard.counted(reply.usage)
        reply = replace(reply, tool_calls=tuple(each.parsed.call for each in planned.calls))
        kept = 0 if state.dependencies.traces is None else state.dependencies.traces.tracing.kept
        model = ModelRecord(self._step_of(asked, StepStatus.success), self._trace_of(asked), asked.previewed, kept)
        thoughts = state.conversation.thoughts
        row = reply_row(state.run, asked.message_id, asked.step_id, reply, thoughts=thoughts, at=asked.at)
        rows = (*(replace(each, step_id=asked.step_id) for each in state.new_rows), row)
        return await self._tools.answer(planned, asked.step_id, rows, model, reply.finish_reason)

    async def _recover_from(self, error: ModelError | Cancelled | HistoryDeleted | BudgetExhausted) -> bool:
        """Makes room for a prompt that was too long, or ends the turn. True when it continues. Raises StorageError."""
        state = self._state
        if isinstance(error, HistoryDeleted):
            await self._committer.end(StopReason.cancelled)
            return False
        if isinstance(error, BudgetExhausted):
            await self._committer.end_without_budget(error)
            return False
        room = Room.none
        try:
            if isinstance(error, ModelError):
                room = await self._guard.make_room(state.position, error, state.new_rows)
        except Cancelled as cancelled:
            error = cancelled
        if room is Room.none:
            await self._committer.fail(error)
            return False
        if room is Room.compacted:
            state.compacted()
        return True

    def _step_of(self, asked: ModelCallResult, status: StepStatus) -> Step:
        """The record of a step with its model call."""
        agent = asked.frame.agent
        models, other = self._state.dependencies.models.of(agent.organization_id), asked.reply.answered_by
        info = asked.model if other is None else models.known(other)
        step = step_record(self._state.run, agent, asked.step_id, status, self._world.clock.now())
        return replace(
            answered_by(step, asked.reply),
            usage=asked.reply.usage,
            model_endpoint=info.endpoint if info else None,
            provider_category=info.category if info else None,
            llm_ns=asked.total_ns,
            step_ns=asked.total_ns,
        )

    def _trace_of(self, asked: ModelCallResult) -> Trace | None:
        traces, exchanged = self._state.dependencies.traces, asked.reply.exchanged
        if traces is None or exchanged is None:
            return None
        return traces.tracing.trace(asked.step_id, asked.at, exchanged.sent, exchanged.received)


def open_turn(
    dependencies: TurnDependencies,
    live: LiveAgent,
    conversation: LiveConversation,
    position: JournalPosition,
    start: TurnStart,
    sink: TurnSink,
) -> Turn:
    """The turn of a run, at its position in the journal; call `begin`, `begin_queued` or `resume` once."""
    state = TurnState(dependencies, live, conversation, position, start, sink)
    models = dependencies.models.of(live.agent.organization_id)
    guard = WindowGuard(dependencies.world, models, live, conversation, sink)
    committer = StepCommitter(state, guard)
    return Turn(state, guard, ModelCall(state, guard), ToolPhase(state, committer), committer)


async def _while_committing(
    opening: Coroutine[Any, Any, None], asking: Coroutine[Any, Any, ModelCallResult]
) -> tuple[ModelCallResult | None, ModelError | Cancelled | HistoryDeleted | BudgetExhausted | None]:
    """Both at once. A failed commit stops the model call and is raised; an error of the other waits for the commit."""
    commit = asyncio.create_task(opening)
    try:
        with Interruption() as call:
            commit.add_done_callback(partial(_stop_if_lost, call))
            asked = await asking
            await commit
            return asked, None
        await commit  # raises: only its failure interrupts the call
    except (ModelError, Cancelled, HistoryDeleted, BudgetExhausted) as error:
        await commit
        return None, error
    finally:
        commit.cancel()
        if commit.done() and not commit.cancelled():
            commit.exception()  # retrieved, so that asyncio does not log it as never retrieved
        # The traceback of an error that leaves here holds this frame: a failed task in it would make a ring, and the
        # whole context would hang in that until the next full collection.
        del commit
    raise AssertionError("unreachable: a lost commit is raised")


def _stop_if_lost(call: Interruption, commit: asyncio.Task[None]) -> None:
    if not commit.cancelled() and commit.exception() is not None:
        call.interrupt()
