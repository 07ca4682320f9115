"""The loop: ask the model, commit, answer its calls, commit, until a reason to stop. One loop for every agent type.

It works on what the activation holds in memory and reads nothing from the database; whatever it commits comes back
from the commit with the newest settings and blocks. A turn that fails ends with a stop reason, never half-way.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kelpie.agent import approvals, journal, sleeptime
from kelpie.agent.asking import Asked, ask
from kelpie.agent.broadcast import Broadcast
from kelpie.agent.calls import NO_WORDS, Planned, Words, batches, cancelled, interrupted, plan, run_together
from kelpie.agent.cancellation import Cancelled
from kelpie.agent.events import MessageCommitted, TurnEnded, TurnOpened
from kelpie.agent.freshness import Forgotten, catch_up
from kelpie.agent.history import left_open
from kelpie.agent.journal import Answer, Committed, Ending, Position, Write
from kelpie.agent.lanes import Hot, Lane
from kelpie.agent.ledger import DETAIL, Exhausted, afford, book
from kelpie.agent.listener import Turn
from kelpie.agent.making import CONTEXT_WINDOW_DEFAULT_MAX
from kelpie.agent.pause import Pauses
from kelpie.agent.recording import Recorder
from kelpie.agent.room import Ended, Room
from kelpie.agent.rows import (
    answer_row,
    answered_by,
    described,
    input_row,
    reason_for,
    reply_row,
    step_record,
    tool_row,
)
from kelpie.agent.rules import made_in
from kelpie.agent.stop import Called
from kelpie.agent.telling import told
from kelpie.agent.underway import Underway
from kelpie.core.approvals import Pending
from kelpie.core.blocks import DEFAULT_LIMIT
from kelpie.core.budgets import BUDGET_KEY
from kelpie.core.errors import KelpieError, ModelError, StorageError
from kelpie.core.ids import AgentId, MessageId, RunId, StepId
from kelpie.core.messages import Message, ToolCall, ToolReturn, Usage
from kelpie.core.runs import Run, RunStatus, Step, StepStatus, StopReason
from kelpie.core.tools import Tool, ToolType
from kelpie.llm.models import Models
from kelpie.observe import logs
from kelpie.storage.runs import Given
from kelpie.storage.traces import NewTrace, Tracing
from kelpie.tools.port import CallContext, ExternalTool
from kelpie.world.world import World

_log = logs.get("agent")


@dataclass(frozen=True, slots=True)
class Equipment:
    """What every turn works with. `touched` tells other activations that something they hold has changed."""

    world: World
    models: Models
    external: ExternalTool | None
    touched: Callable[[Iterable[AgentId]], None]
    pauses: Pauses
    underway: Underway
    block_limit: int = DEFAULT_LIMIT  # of memory blocks that agents make
    context_window: int = CONTEXT_WINDOW_DEFAULT_MAX  # at most so large unless asked for
    tracing: Tracing | None = None  # how much is kept of what goes over the wire; None is nothing
    outside: Mapping[str, ExternalTool] = field(default_factory=dict[str, ExternalTool])  # built-in ones, by name
    summon: Callable[[Iterable[Run]], None] = lambda runs: None  # lets other agents take up runs that wait for them
    broadcast: Broadcast = field(default_factory=Broadcast)  # tells who follows a background run that there is news

    def runner(self, tool: Tool) -> ExternalTool | None:
        """What runs a tool that does not run inside a commit; None when nothing does."""
        built_in = None if tool.tool_type is ToolType.custom else self.outside.get(tool.name)
        return built_in or self.external


class TurnLoop:
    """One turn of one conversation, from where it stands to its end."""

    def __init__(
        self,
        equipment: Equipment,
        hot: Hot,
        lane: Lane,
        position: Position,
        given: Given,
        turn: Turn | Recorder,
        *,
        deltas: bool = False,
        said: Sequence[Message] = (),  # what the history has of the turn already
        waited: Pending | None = None,  # what the turn has waited for until now
    ) -> None:
        self._equipment = equipment
        self._world = equipment.world
        self._hot = hot
        self._lane = lane
        self._position = position
        self._given = given
        self._turn = turn
        self._recorder = turn if isinstance(turn, Recorder) else None
        self._deltas = deltas
        self._waiting: tuple[Message, ...] = ()  # the input, until the first step takes it into the history
        self._context_tokens: int | None = None
        self._step_usage = Usage()  # of the latest step
        self._room = Room(equipment.world, equipment.models, lane, turn)
        self._said = list(said)  # the rows of the turn, which the tool rules go by
        self._waited = waited
        self._client = frozenset(tool.name for tool in given.client_tools)

    # --- the ways in ---------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """A new turn: its input is committed while the model already works on it. Raises StorageError."""
        run = self._position.run
        self._turn.tell(TurnOpened(run.id, run.created_at))
        opening = journal.open_turn(self._world.database, self._position, self._lane.loaded, self._given)
        if self._waited is not None:
            await opening
            self._position = self._position.after(run)
            await self.begin_again()
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
        elif isinstance(error, Exhausted):
            await self._run_dry(error)
        elif error is not None:
            if await self._went_on_after(error):
                await self.go_on()
        elif asked is not None and await self._step(asked):
            await self.go_on()

    async def begin_waiting(self) -> None:
        """A turn whose run was stored before its lane was free. Raises StorageError."""
        if await journal.take_up(self._world.database, self._position, self._given):
            self._position = self._position.after(replace(self._position.run, status=RunStatus.running))
            await self.begin_again()

    async def begin_again(self) -> None:
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
        await self.go_on()

    async def go_on(self) -> None:
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
            except Exhausted as error:
                await self._run_dry(error)
                return
            goes_on = await self._step(asked)

    async def answer_open(self, reply: Message, left: tuple[ToolCall, ...]) -> bool:
        """After a crash: answers the calls that were left open, then tells whether the turn goes on.

        What runs inside the commit is simply run; of what runs outside nobody knows how far it came.
        """
        if self._turn.cancellation.wished:
            await self._end(StopReason.cancelled)
            return False
        assert reply.step_id is not None
        earlier = [row for row in self._said if row.step_id != reply.step_id]
        planned, open_ids = self._plan(reply.tool_calls, earlier, self._words(reply)), {call.id for call in left}
        answers = tuple(
            Answer(p, self._world.ids.uuid(), interrupted(p.call) if p.external else None)
            for p in planned
            if p.call.id in open_ids
        )
        write = self._write("recover", reply.step_id, answers=answers, ending=self._ending(planned, "tool_calls"))
        return await self._commit(write)

    # --- a step --------------------------------------------------------------------------------------------------

    async def _ask(self) -> Asked:
        context = await catch_up(self._world.database, self._lane, self._position)
        if self._lane.loaded.agent.budget is not None:
            await afford(self._world.database, self._equipment.models, self._hot, self._lane, self._world.clock.now())
        entries = self._room.show(context, self._waiting)
        listen = self._turn.tell if self._deltas else None
        client = self._given.client_tools
        allowed = self._lane.verdict(self._said, client)
        with self._turn.cancellation.abortable():
            return await ask(self._world, self._equipment.models, self._lane, entries, allowed, listen, client)

    async def _step(self, asked: Asked) -> bool:
        """Commits a reply and answers its calls; tells whether the turn goes on. Raises StorageError."""
        if self._turn.cancellation.wished:  # what was only said is dropped; what it cost is not
            run = self._position.run
            self._position = replace(self._position, run=replace(run, usage=run.usage + asked.reply.usage))
            step = self._asked_step(asked, StepStatus.cancelled)
            await self._end(StopReason.cancelled, replace(step, stop_reason=StopReason.cancelled))
            return False
        self._count(asked)
        planned = self._plan(asked.reply.tool_calls, self._said)
        asked = replace(asked, reply=replace(asked.reply, tool_calls=tuple(p.call for p in planned)))
        step = self._asked_step(asked, StepStatus.success)
        rows = (*(replace(row, step_id=asked.step_id) for row in self._waiting), self._reply(asked))
        trace = self._trace(asked)
        if waiting := {p.call.id: p.awaits for p in planned if p.awaits}:
            request = approvals.request_row(rows[-1], waiting)
            waits = approvals.pending_of(request, self._given.earlier, self._position.conversation)
            rows = (*rows[:-1], request)
            write = self._write("ask", asked.step_id, rows=rows, step=step, trace=trace, waits=waits)
            return await self._commit(replace(write, previewed=asked.previewed))
        if not any(p.external for p in planned):
            answers = tuple(Answer(p, self._world.ids.uuid()) for p in planned)
            ending = self._ending(planned, asked.reply.finish_reason)
            write = self._write(
                "step", asked.step_id, rows=rows, step=step, trace=trace, answers=answers, ending=ending
            )
            return await self._commit(replace(write, previewed=asked.previewed))
        write = self._write("reply", asked.step_id, rows=rows, step=step, trace=trace)
        await self._commit(replace(write, previewed=asked.previewed))
        return await self._answer_one_by_one(asked.step_id, planned)

    async def _take_answers(self, waited: Pending) -> bool:
        """Commits what was said to the calls that waited and runs what may run; tells whether the turn goes on."""
        request = next(row for row in self._said if row.id == waited.request)
        assert request.step_id is not None
        new = tuple(answer for answer in self._given.answers if answer not in waited.answers)
        rows = (answer_row(self._position.run, self._world.ids.new(MessageId), new, self._world.clock.now()),)
        waits = replace(waited, answers=self._given.answers)
        if approvals.left(request, waits):
            write = self._write("answers", request.step_id, rows=rows, waited=waited, waits=waits)
            return await self._commit(write)
        earlier = [row for row in self._said if row.step_id != request.step_id]
        planned = self._plan(request.tool_calls, earlier, self._words(request))
        done, others = [p for p in planned if p.done], [p for p in planned if not p.done]
        together = not any(p.external for p in others)
        answers = tuple(Answer(p, self._world.ids.uuid()) for p in ((*done, *others) if together else done))
        ending = self._ending(planned, "tool_calls") if together else None
        write = self._write("answers", request.step_id, rows=rows, answers=answers, ending=ending, waited=waited)
        goes_on, self._waited = await self._commit(write), None
        if not goes_on or together:
            return goes_on
        return await self._answer_one_by_one(request.step_id, others, planned)

    async def _answer_one_by_one(
        self, step_id: StepId, planned: list[Planned], of_step: list[Planned] | None = None
    ) -> bool:
        """Results are committed before the next calls begin. `of_step` are all calls, if some have a result."""
        goes_on, later = True, list(planned)
        for batch in batches(planned):
            uuids, later = [self._world.ids.uuid() for _ in batch], later[len(batch) :]
            try:
                done = await self._run_outside(batch, uuids)
            except Cancelled:
                await self._end(StopReason.cancelled)
                return False
            answers = tuple(Answer(p, uuid, result) for p, uuid, result in zip(batch, uuids, done, strict=True))
            ending = None if later else self._ending(of_step or planned, "tool_calls")
            left = tuple(p.call for p in later)
            goes_on = await self._commit(self._write("result", step_id, answers=answers, left=left, ending=ending))
            if not goes_on:
                break
        return goes_on

    async def _run_outside(self, batch: Sequence[Planned], uuids: Sequence[str]) -> Sequence[ToolReturn | None]:
        """Runs those calls of a batch that run outside, all at once. Raises Cancelled."""
        now, conversation = self._world.clock.now(), self._position.run.conversation_id
        if not batch[0].external:
            self._turn.cancellation.check()
            return [None]
        contexts = [CallContext(self._lane.agent, now, uuid, conversation, chain=self._given.chain) for uuid in uuids]
        with self._turn.cancellation.abortable():
            return await run_together(list(zip(batch, contexts, strict=True)))

    async def _commit(self, write: Write) -> bool:
        """One commit of a step; afterwards memory and listener know what it wrote. True when the turn goes on."""
        if self._recorder is not None:
            write = replace(write, record=await self._recorder.enclose(self._context_tokens))
        committed = await journal.write_step(self._world.database, self._position, self._lane.loaded, write)
        self._waiting = ()
        book(self._hot, write.step)
        self._take_in(committed)
        if self._recorder is not None:
            self._recorder.sealed()
        heartbeats = self._lane.spec.heartbeats
        for event in told(committed.rows, write.nudge_id, previewed=write.previewed, heartbeats=heartbeats):
            self._turn.tell(event)
        goes_on = committed.stop is None
        try:
            if write.ending is not None and (goes_on or committed.run.status is RunStatus.completed):
                await self._tidy(write.step_id, goes_on=goes_on)
        finally:
            if not goes_on:
                self._tell_end(committed.run, None, sleeptime.run_ids(committed.begun))
        return goes_on

    def _take_in(self, committed: Committed) -> None:
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

    async def _went_on_after(self, error: ModelError | Cancelled) -> bool:
        """Makes room for a prompt that was too long; ends the turn when that is no help. Raises StorageError."""
        position: Position | None = None
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
            _log.warning("a context could not be compacted after a turn", error=str(error))

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

    async def _run_dry(self, error: Exhausted) -> None:
        """Ends the turn because the agent has nothing left to spend; what was committed before stays."""
        run = self._position.run
        metadata = {**run.metadata, BUDGET_KEY: error.told}
        self._position = replace(self._position, run=replace(run, metadata=metadata, stop_detail=DETAIL))
        await self._end(StopReason.insufficient_credits)

    async def _end(self, reason: StopReason, step: Step | None = None, error: KelpieError | None = None) -> None:
        run = journal.ended(self._position.run, reason, self._world.clock.now())
        orphans = self._cancelled_calls(run) if reason is StopReason.cancelled else ()
        record = await self._recorder.enclose(self._context_tokens) if self._recorder is not None else None
        cleared = await journal.close_turn(
            self._world.database, self._position, run, orphans, step, self._lane.loaded, record
        )
        if cleared or orphans:
            self._lane.reread()
        book(self._hot, step)
        self._position = self._position.after(run)
        for row in orphans:
            self._turn.tell(MessageCommitted(row))
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
        tokens, usage, budget = self._context_tokens, run.usage, run.metadata.get(BUDGET_KEY)
        reason, detail = run.stop_reason, run.stop_detail
        self._turn.tell(TurnEnded(run.id, reason, usage, run.step_count, tokens, error, detail, begun, budget))

    # --- small things --------------------------------------------------------------------------------------------

    def _take_input(self) -> None:
        run, ids = self._position.run, self._world.ids
        self._waiting = tuple(input_row(run, message, ids) for message in self._given.messages)

    def _count(self, asked: Asked) -> None:
        run, usage = self._position.run, asked.reply.usage
        ttft = run.ttft_ns if run.ttft_ns is not None else asked.first_ns
        run = replace(run, usage=run.usage + usage, step_count=run.step_count + 1, ttft_ns=ttft)
        self._position = replace(self._position, run=run)
        self._context_tokens = None if self._lane.spec.heartbeats else usage.total_tokens
        self._step_usage = usage
        self._room.counted(usage)

    def _reply(self, asked: Asked) -> Message:
        return reply_row(
            self._position.run,
            asked.message_id,
            asked.step_id,
            asked.reply,
            inner_thoughts=self._lane.speaks_in_calls,
            at=asked.at,
        )

    def _asked_step(self, asked: Asked, status: StepStatus) -> Step:
        return replace(
            answered_by(self._record(asked.step_id, status), asked.reply),
            usage=asked.reply.usage,
            model_endpoint=self._endpoint(asked.reply.answered_by),
            llm_ns=asked.total_ns,
            step_ns=asked.total_ns,
        )

    def _record(self, step_id: StepId, status: StepStatus) -> Step:
        return step_record(self._position.run, self._lane.agent, step_id, status, self._world.clock.now())

    def _endpoint(self, answered_by: str | None) -> str | None:
        info = self._equipment.models.known(answered_by or self._lane.agent.model.handle)
        return info.endpoint if info else None

    def _write(self, kind: str, step_id: StepId, **fields: Any) -> Write:
        ids, now = self._world.ids, self._world.clock.now()
        fields["block_limit"] = self._equipment.block_limit
        fields["cancelled"] = self._turn.cancellation.wished
        fields["chain"], fields["group_id"] = self._given.chain, self._given.group_id
        return Write(kind, now, step_id, ids.new(MessageId), ids.new(MessageId), **fields)

    def _trace(self, asked: Asked) -> NewTrace | None:
        tracing, exchanged = self._equipment.tracing, asked.reply.exchanged
        if tracing is None or exchanged is None:
            return None
        return NewTrace(tracing, exchanged.sent, exchanged.received)

    def _plan(self, calls: Iterable[ToolCall], said: Sequence[Message], words: Words | None = None) -> list[Planned]:
        loaded = self._lane.loaded
        tools = approvals.with_client(loaded.tools, self._given.client_tools)
        words = words or (Words(self._client) if self._client else NO_WORDS)
        return plan(calls, loaded.agent, tools, self._equipment.runner, said, self._lane.exits, words)

    def _words(self, reply: Message) -> Words | None:
        """What was said to the calls of a reply, if it is the one that waited."""
        if reply.id != self._given.request:
            return None
        return Words(self._client, {answer.call_id: answer for answer in self._given.answers})

    def _ending(self, planned: Iterable[Planned], finish_reason: str) -> Ending:
        called = tuple(Called(p.call.name, p.heartbeat, p.refusal is not None or p.denied, p.misruled) for p in planned)
        count = self._position.run.step_count
        more = count == 0 and bool(self._given.messages)
        client = tuple(tool.name for tool in self._given.client_tools)
        paused = self._equipment.pauses.until(self._lane.agent) is not None
        return Ending(called, finish_reason, self._given.max_steps - count, made_in(self._said), paused, more, client)


async def _while_committing(
    opening: Coroutine[Any, Any, None], asking: Coroutine[Any, Any, Asked]
) -> tuple[Asked | None, ModelError | Cancelled | Forgotten | Exhausted | None]:
    """Both at once. A failed commit stops the model call and is raised; an error of the other waits for the commit."""
    commit, answer = asyncio.create_task(opening), asyncio.create_task(asking)
    try:
        await asyncio.wait((commit, answer), return_when=asyncio.FIRST_EXCEPTION)
        await commit
        return await answer, None
    except (ModelError, Cancelled, Forgotten, Exhausted) as error:
        return None, error
    finally:
        for task in (commit, answer):
            task.cancel()
            if task.done() and not task.cancelled():
                task.exception()  # looked at, so that asyncio does not report it as forgotten
