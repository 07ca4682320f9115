"""Answering the calls of a reply: those that somebody's word lets run, those that run outside, those that a crash left
open. Every result is committed before anything that follows it begins.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kelpie.agent import approvals
from kelpie.agent.calls import batches, foreseen, run_together
from kelpie.agent.cancellation import Cancelled
from kelpie.agent.course import Course
from kelpie.agent.entry import Answer, Ending
from kelpie.agent.planning import NO_WORDS, Planned, Words, plan
from kelpie.agent.results import interrupted
from kelpie.agent.rows import answer_row
from kelpie.agent.rules import made_in
from kelpie.agent.stop import Called
from kelpie.core.approvals import Pending
from kelpie.core.ids import MessageId, StepId
from kelpie.core.messages import Message, ToolCall, ToolReturn
from kelpie.core.runs import StopReason
from kelpie.tools.port import CallContext


class Answering(Course):
    """A turn, as far as it answers calls. Each of its ways tells whether the turn goes on. Raises StorageError."""

    async def answer_open(self, reply: Message, left: tuple[ToolCall, ...]) -> bool:
        """After a crash: answers the calls that were left open, then tells whether the turn goes on.

        What runs inside the commit is simply run; of what runs outside nobody knows how far it came.
        """
        if self._turn.cancellation.wished:
            await self._end(StopReason.cancelled)
            return False
        assert reply.step_id is not None
        earlier = [row for row in self._said if row.step_id != reply.step_id]
        try:
            planned = await self._foreseen(self._plan(reply.tool_calls, earlier, self._words(reply)), reply.step_id)
        except Cancelled:
            await self._end(StopReason.cancelled)
            return False
        open_ids = {call.id for call in left}
        answers = tuple(
            Answer(p, self._world.ids.uuid(), interrupted(p.call) if p.external else None)
            for p in planned
            if p.call.id in open_ids
        )
        write = self._write("recover", reply.step_id, answers=answers, ending=self._ending(planned, "tool_calls"))
        return await self._commit(write)

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
        try:
            planned = await self._foreseen(
                self._plan(request.tool_calls, earlier, self._words(request)), request.step_id
            )
        except Cancelled:  # nothing of the answers was taken: the calls wait on
            await self._end(StopReason.cancelled)
            return False
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

    async def _foreseen(self, planned: list[Planned], step_id: StepId) -> list[Planned]:
        """The calls with what they want to know before the commit that runs them. Raises Cancelled."""
        if not any(p.prepare for p in planned):
            return planned
        run = self._position.run
        context = CallContext(
            self._lane.agent, self._world.clock.now(), "", run.conversation_id, run_id=run.id, step_id=step_id
        )
        with self._turn.cancellation.abortable():
            return await foreseen(planned, self._equipment.foresight, context)

    def _ending(self, planned: Iterable[Planned], finish_reason: str) -> Ending:
        called = tuple(Called(p.call.name, p.heartbeat, p.refusal is not None or p.denied, p.misruled) for p in planned)
        count = self._position.run.step_count
        more = count == 0 and bool(self._given.messages)
        client = tuple(tool.name for tool in self._given.client_tools)
        paused = self._equipment.pauses.until(self._lane.agent) is not None
        return Ending(called, finish_reason, self._given.max_steps - count, made_in(self._said), paused, more, client)
