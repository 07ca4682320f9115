"""The loop: ask the model, commit, answer its calls, commit, until a reason to stop. One loop for every agent type.

It works on what the activation holds in memory and reads nothing from the database; whatever it commits comes back
from the commit with the newest settings and blocks. A turn that fails ends with a stop reason, never half-way.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from kelpie.actors.interruption import Interruption
from kelpie.agent.events.cancellation import Cancelled
from kelpie.agent.events.turn_events import TurnOpened
from kelpie.agent.events.turn_sink import TurnSink
from kelpie.agent.journal import commits as journal
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.journal.entries import CallAnswer
from kelpie.agent.journal.message_rows import input_row
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.live.reload import Forgotten, catch_up
from kelpie.agent.live.spending import BudgetExhausted, afford
from kelpie.agent.prompt.wellformed_history import LeftOpen
from kelpie.agent.tool_calls import approval_matching
from kelpie.agent.turn.approval_answers import TurnStart
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.agent.turn.model_call import ModelCallResult, ask
from kelpie.agent.turn.tool_phase import ToolPhase
from kelpie.core.conversations.runs import RunStatus, StepStatus, StopReason
from kelpie.core.errors import ModelError


class Turn(ToolPhase):
    """One turn of one conversation, from where it stands to its end."""

    async def begin(self) -> None:
        """A new turn: its input is committed while the model already works on it. Raises StorageError."""
        run = self._position.run
        self._turn.emit(TurnOpened(run.id, run.created_at))
        opening = journal.open_turn(self._world.database, self._position, self._lane.loaded, self._given)
        if self._waited is not None:
            await opening
            self._position = self._position.after(run)
            await self._begin_again()
            return
        if self._given.max_steps <= 0:
            await opening
            self._position = self._position.after(run)
            await self._end(StopReason.end_turn)
            return
        self._take_input()
        asked, error = await _while_committing(opening, self._ask())
        self._position = self._position.after(run)
        if isinstance(error, Forgotten):
            await self._end(StopReason.cancelled)
        elif isinstance(error, BudgetExhausted):
            await self._run_dry(error)
        elif error is not None:
            if await self._went_on_after(error):
                await self._go_on()
        elif asked is not None and await self._step(asked):
            await self._go_on()

    async def begin_queued(self) -> None:
        """A turn whose run was stored before its lane was free. Raises StorageError."""
        if await journal.take_up(self._world.database, self._position, self._given):
            self._position = self._position.after(replace(self._position.run, status=RunStatus.running))
            await self._begin_again()

    async def resume(self, left: LeftOpen | None) -> None:
        """Continues a turn that a crash interrupted, beginning with the calls it left open. Raises StorageError."""
        if left is not None and not await self.answer_open(*left):
            return
        if self._position.run.step_count == 0:
            await self._begin_again()
        else:
            await self._go_on()

    async def _begin_again(self) -> None:
        """A turn that was opened before, but has no step yet. Raises StorageError."""
        if self._waited is not None:
            try:
                self._turn.cancellation.check()
                await catch_up(self._world.database, self._lane, self._position)
            except (Forgotten, Cancelled):
                await self._end(StopReason.cancelled)
                return
            if not await self._take_answers(self._waited):
                return
        elif self._given.max_steps <= 0:
            await self._end(StopReason.end_turn)
            return
        self._take_input()
        await self._go_on()

    async def _go_on(self) -> None:
        """From here to the end, asking the model next. Raises StorageError."""
        goes_on = True
        while goes_on:
            try:
                asked = await self._ask()
            except (ModelError, Cancelled) as error:
                if await self._went_on_after(error):
                    continue
                return
            except Forgotten:
                await self._end(StopReason.cancelled)
                return
            except BudgetExhausted as error:
                await self._run_dry(error)
                return
            goes_on = await self._step(asked)

    # --- a step --------------------------------------------------------------------------------------------------

    async def _ask(self) -> ModelCallResult:
        context = await catch_up(self._world.database, self._lane, self._position)
        bounds = self._bounds()
        if bounds.quota.tokens is not None or self._lane.loaded.agent.budget is not None:
            now, models = self._world.clock.now(), self._equipment.models
            await afford(self._world.database, models, self._hot, self._lane, bounds, now)
        entries = self._room.show(context, self._waiting)
        listen = self._turn.emit if self._deltas else None
        client = self._given.client_tools
        allowed = self._lane.verdict(self._said, client, bounds)
        with self._turn.cancellation.abortable(asks=True):
            return await ask(self._world, self._equipment.models, self._lane, entries, allowed, listen, client)

    async def _step(self, asked: ModelCallResult) -> bool:
        """Commits a reply and answers its calls; tells whether the turn goes on. Raises StorageError."""
        try:
            self._turn.cancellation.check()
            planned = await self._planned(asked.reply.tool_calls, self._said, asked.step_id)
        except Cancelled:  # what was only said is dropped; what it cost is not
            run = self._position.run
            self._position = replace(self._position, run=replace(run, usage=run.usage + asked.reply.usage))
            step = self._asked_step(asked, StepStatus.cancelled)
            await self._end(StopReason.cancelled, replace(step, stop_reason=StopReason.cancelled))
            return False
        self._count(asked)
        asked = replace(asked, reply=replace(asked.reply, tool_calls=tuple(p.call for p in planned)))
        step = self._asked_step(asked, StepStatus.success)
        rows = (*(replace(row, step_id=asked.step_id) for row in self._waiting), self._reply(asked))
        trace = self._trace(asked)
        if waiting := {p.call.id: p.awaits for p in planned if p.awaits}:
            request = approval_matching.request_row(rows[-1], waiting)
            waits = approval_matching.pending_of(request, self._given.earlier, self._position.conversation)
            rows = (*rows[:-1], request)
            write = self._write("ask", asked.step_id, rows=rows, step=step, trace=trace, waits=waits)
            return await self._commit(replace(write, previewed=asked.previewed))
        if not any(p.external for p in planned):
            answers = tuple(CallAnswer(p, self._world.ids.uuid()) for p in planned)
            ending = self._ending(planned, asked.reply.finish_reason)
            write = self._write(
                "step", asked.step_id, rows=rows, step=step, trace=trace, answers=answers, ending=ending
            )
            return await self._commit(replace(write, previewed=asked.previewed))
        write = self._write("reply", asked.step_id, rows=rows, step=step, trace=trace)
        await self._commit(replace(write, previewed=asked.previewed))
        return await self._answer_one_by_one(asked.step_id, planned)

    async def _went_on_after(self, error: ModelError | Cancelled) -> bool:
        """Makes room for a prompt that was too long; ends the turn when that is no help. Raises StorageError."""
        position: JournalPosition | None = None
        try:
            if isinstance(error, ModelError):
                position = await self._room.make(self._position, error, self._waiting)
        except Cancelled as wish:
            error = wish
        if position is None:
            await self._fail(error)
            return False
        self._position = position
        return True

    def _take_input(self) -> None:
        run, ids = self._position.run, self._world.ids
        self._waiting = tuple(input_row(run, message, ids) for message in self._given.messages)


def open_turn(
    dependencies: TurnDependencies,
    live: LiveAgent,
    conversation: LiveConversation,
    position: JournalPosition,
    start: TurnStart,
    sink: TurnSink,
) -> Turn:
    """The turn of a run, at its position in the journal; call `begin`, `begin_queued` or `resume` once."""
    deltas = start.input.deltas
    given, said, waited = start.input, start.rows, start.waited
    return Turn(dependencies, live, conversation, position, given, sink, deltas=deltas, said=said, waited=waited)


async def _while_committing(
    opening: Coroutine[Any, Any, None], asking: Coroutine[Any, Any, ModelCallResult]
) -> tuple[ModelCallResult | None, ModelError | Cancelled | Forgotten | BudgetExhausted | None]:
    """Both at once. A failed commit stops the model call and is raised; an error of the other waits for the commit."""
    commit = asyncio.create_task(opening)
    try:
        with Interruption() as call:
            commit.add_done_callback(partial(_stop_if_lost, call))
            asked = await asking
            await commit
            return asked, None
        await commit  # raises: only its failure breaks off the call
    except (ModelError, Cancelled, Forgotten, BudgetExhausted) as error:
        await commit
        return None, error
    finally:
        commit.cancel()
        if commit.done() and not commit.cancelled():
            commit.exception()  # looked at, so that asyncio does not report it as forgotten
        # The traceback of an error that leaves here holds this frame: a failed task in it would make a ring, and the
        # whole context would hang in that until the next full collection.
        del commit
    raise AssertionError("unreachable: a lost commit is raised")


def _stop_if_lost(call: Interruption, commit: asyncio.Task[None]) -> None:
    if not commit.cancelled() and commit.exception() is not None:
        call.interrupt()
