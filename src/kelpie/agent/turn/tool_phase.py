"""Answering the calls of a reply: those that somebody's word lets run, those that run outside, those that a crash left
open. Every result is committed before anything that follows it begins.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kelpie.agent.events.cancellation import Cancelled
from kelpie.agent.journal.entries import CallAnswer, TurnEnding
from kelpie.agent.journal.message_rows import answer_row
from kelpie.agent.live import current_permissions
from kelpie.agent.prompt.synthetic_results import interrupted, lost
from kelpie.agent.tool_calls import approval_matching
from kelpie.agent.tool_calls.call_plan import NO_WORDS, CallDecisions, PlannedCall, barred_names, permitted, plan
from kelpie.agent.tool_calls.execution import ExecutedCall, batches, foreseen, run_together
from kelpie.agent.tool_calls.tool_rules import made_in
from kelpie.agent.tool_calls.turn_end import CallSummary
from kelpie.agent.turn.turn_state import TurnState
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import Message, Role, ToolCall, ToolReturn
from kelpie.core.conversations.runs import StopReason
from kelpie.core.ids import MessageId, StepId
from kelpie.core.permissions.policies import EffectivePermissions
from kelpie.observe import logs
from kelpie.tools.calls.interface import CallContext

_log = logs.get("agent")


class ToolPhase(TurnState):
    """A turn, as far as it answers calls. Each of its ways tells whether the turn goes on. Raises StorageError."""

    async def answer_open(self, reply: Message, left: tuple[ToolCall, ...]) -> bool:
        """After a crash: answers the calls that were left open, then tells whether the turn goes on.

        What runs inside the commit is simply run; of what runs outside nobody knows how far it came. Where a row of
        results is there but cannot be read, nothing is run again.
        """
        if self._turn.cancellation.wished:
            await self._end(StopReason.cancelled)
            return False
        assert reply.step_id is not None
        earlier = [row for row in self._said if row.step_id != reply.step_id]
        try:
            planned = await self._planned(reply.tool_calls, earlier, reply.step_id, self._words(reply))
        except Cancelled:
            await self._end(StopReason.cancelled)
            return False
        open_ids = {call.id for call in left}
        unreadable = any(row.lost and row.role is Role.tool and row.step_id == reply.step_id for row in self._said)

        def known(p: PlannedCall) -> ToolReturn | None:
            return lost(p.call) if unreadable else interrupted(p.call) if p.external else None

        answers = tuple(CallAnswer(p, self._world.ids.uuid(), known(p)) for p in planned if p.call.id in open_ids)
        write = self._write("recover", reply.step_id, answers=answers, ending=self._ending(planned, "tool_calls"))
        return await self._commit(write)

    async def _take_answers(self, waited: PendingCalls) -> bool:
        """Commits what was said to the calls that waited and runs what may run; tells whether the turn goes on."""
        request = next(row for row in self._said if row.id == waited.request)
        assert request.step_id is not None
        new = tuple(answer for answer in self._given.answers if answer not in waited.answers)
        rows = (answer_row(self._position.run, self._world.ids.new(MessageId), new, self._world.clock.now()),)
        waits = replace(waited, answers=self._given.answers)
        if approval_matching.left(request, waits):
            write = self._write("answers", request.step_id, rows=rows, waited=waited, waits=waits)
            return await self._commit(write)
        earlier = [row for row in self._said if row.step_id != request.step_id]
        try:
            planned = await self._planned(request.tool_calls, earlier, request.step_id, self._words(request))
        except Cancelled:  # nothing of the answers was taken: the calls wait on
            await self._end(StopReason.cancelled)
            return False
        done, others = [p for p in planned if p.done], [p for p in planned if not p.done]
        together = not any(p.external for p in others)
        answers = tuple(CallAnswer(p, self._world.ids.uuid()) for p in ((*done, *others) if together else done))
        ending = self._ending(planned, "tool_calls") if together else None
        write = self._write("answers", request.step_id, rows=rows, answers=answers, ending=ending, waited=waited)
        goes_on, self._waited = await self._commit(write), None
        if not goes_on or together:
            return goes_on
        return await self._answer_one_by_one(request.step_id, others, planned)

    async def _answer_one_by_one(
        self, step_id: StepId, planned: list[PlannedCall], of_step: list[PlannedCall] | None = None
    ) -> bool:
        """Results are committed before the next calls begin. `of_step` are all calls, if some have a result."""
        goes_on, later, of_step = True, list(planned), list(of_step or planned)
        for batch in batches(planned):
            uuids, later = [self._world.ids.uuid() for _ in batch], later[len(batch) :]
            if batch[0].external:
                batch = await self._still_permitted(batch, of_step)
            try:
                done = await self._run_outside(batch, uuids, step_id)
            except Cancelled:
                await self._end(StopReason.cancelled)
                return False
            answers = tuple(
                CallAnswer(p, uuid) if ran is None else CallAnswer(p, uuid, ran.result, ran.took)
                for p, uuid, ran in zip(batch, uuids, done, strict=True)
            )
            ending = None if later else self._ending(of_step, "tool_calls")
            left = tuple(p.call for p in later)
            goes_on = await self._commit(self._write("result", step_id, answers=answers, left=left, ending=ending))
            if not goes_on:
                break
        return goes_on

    async def _run_outside(
        self, batch: Sequence[PlannedCall], uuids: Sequence[str], step_id: StepId
    ) -> Sequence[ExecutedCall | None]:
        """Runs those calls of a batch that run outside, all at once. Raises Cancelled."""
        now, run = self._world.clock.now(), self._position.run
        running = {
            p.call.id: CallContext(
                self._lane.agent,
                now,
                uuid,
                run.conversation_id,
                chain=self._given.chain,
                run_id=run.id,
                step_id=step_id,
                quota=self._bounds().quota,
            )
            for p, uuid in zip(batch, uuids, strict=True)
            if p.external
        }
        if not running:
            self._turn.cancellation.check()
            return [None] * len(batch)
        calls = [(p, running[p.call.id]) for p in batch if p.call.id in running]
        self._meters = {call: context.meter for call, context in running.items()}
        with self._turn.cancellation.abortable():
            done = iter(await run_together(calls, self._world.clock.monotonic_ns))
        return [next(done) if p.call.id in running else None for p in batch]

    async def _planned(
        self, calls: Iterable[ToolCall], said: Sequence[Message], step_id: StepId, words: CallDecisions | None = None
    ) -> list[PlannedCall]:
        """How the calls of a reply will be answered, with what they want to know beforehand. Raises Cancelled."""
        loaded = self._lane.loaded
        tools = approval_matching.with_client(loaded.tools, self._given.client_tools)
        words = words or (CallDecisions(self._client) if self._client else NO_WORDS)
        warrant = await self._warrant()
        found = plan(calls, loaded.agent, tools, self._equipment.runner, said, self._lane.exits, words, warrant)
        if any(p.prepare for p in found):
            found = permitted(await self._foreseen(found, step_id), await self._warrant())
        for each in found:
            self._tell_barred(each)
        return found

    async def _still_permitted(self, batch: Sequence[PlannedCall], of_step: list[PlannedCall]) -> list[PlannedCall]:
        """The calls of a batch as permissions and limits stand now, noted among all of the step."""
        checked = permitted(batch, await self._warrant())
        for before, now in zip(batch, checked, strict=True):
            if now is not before:
                of_step[of_step.index(before)] = now
                self._tell_barred(now)
        return checked

    async def _warrant(self) -> EffectivePermissions:
        world, policy = self._world, self._equipment.policy
        return await current_permissions.current(world.database, policy, self._hot, self._lane, world.clock.now())

    def _tell_barred(self, planned: PlannedCall) -> None:
        if planned.barred is not None:
            refusal, tool = planned.barred, planned.call.name
            _log.warning(
                "tool_call_refused",
                "Tool call refused by permissions or limits",
                tool=tool,
                by=refusal.layer or "limit",
                reason=refusal.reason,
            )

    def _words(self, reply: Message) -> CallDecisions | None:
        """What was said to the calls of a reply, if it is the one that waited."""
        if reply.id != self._given.request:
            return None
        return CallDecisions(self._client, {answer.call_id: answer for answer in self._given.answers})

    async def _foreseen(self, planned: list[PlannedCall], step_id: StepId) -> list[PlannedCall]:
        """The calls with what they want to know before the commit that runs them. Raises Cancelled."""
        run = self._position.run
        context = CallContext(
            self._lane.agent, self._world.clock.now(), "", run.conversation_id, run_id=run.id, step_id=step_id
        )
        with self._turn.cancellation.abortable():
            return await foreseen(planned, self._equipment.foresight, context)

    def _ending(self, planned: Iterable[PlannedCall], finish_reason: str) -> TurnEnding:
        called = tuple(
            CallSummary(p.call.name, p.heartbeat, p.refusal is not None or p.denied, p.misruled) for p in planned
        )
        count = self._position.run.step_count
        more = count == 0 and bool(self._given.messages)
        client = tuple(tool.name for tool in self._given.client_tools)
        paused = self._equipment.pauses.until(self._lane.agent) is not None
        left, made = self._given.max_steps - count, made_in(self._said)
        barred = barred_names(self._lane.loaded.tools, self._bounds())
        return TurnEnding(called, finish_reason, left, made, paused, more, client, barred)
