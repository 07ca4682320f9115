"""Tool phase of a turn: plans, checks, runs and answers the calls of a reply.

Calls run after a reply, after the approvals they waited for, and after a crash that left them open. Every result is
committed before anything that follows it begins.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kelpie.agent.events.cancellation import Cancelled
from kelpie.agent.events.turn_events import ToolProgress
from kelpie.agent.journal.entries import (
    CallToAnswer,
    EntryFrame,
    ModelRecord,
    TurnEnding,
    answers_entry,
    ask_entry,
    partial_answers_entry,
    question_entry,
    recover_entry,
    reply_entry,
    result_entry,
    step_entry,
)
from kelpie.agent.journal.message_rows import answer_row
from kelpie.agent.live.reload import current_permissions
from kelpie.agent.prompt.synthetic_results import interrupted, lost
from kelpie.agent.tool_calls import approval_matching
from kelpie.agent.tool_calls.call_plan import (
    NO_DECISIONS,
    AnsweredCall,
    AwaitingCall,
    CallDecisions,
    ExternalCall,
    PlannedCall,
    RefusedCall,
    TransactionalCall,
    denied_names,
    plan,
    recheck,
)
from kelpie.agent.tool_calls.execution import ExecutedCall, batches, precomputed, run_together
from kelpie.agent.tool_calls.tool_rules import made_in
from kelpie.agent.tool_calls.turn_end import CallSummary
from kelpie.agent.turn.step_committer import StepCommitter
from kelpie.agent.turn.turn_state import TurnState
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import Awaits, Message, Role, Text, ToolCall, ToolReturn
from kelpie.core.conversations.questions import ToolQuestions
from kelpie.core.conversations.runs import StopReason
from kelpie.core.ids import MessageId, StepId
from kelpie.core.permissions.policies import EffectivePermissions
from kelpie.observe import logs
from kelpie.tools.calls.interface import CallContext, Progress

PROGRESS_MAX = 200  # notifications of one call that clients are told

_log = logs.get("agent")


@dataclass(frozen=True, slots=True)
class CallPlan:
    """The calls of a reply as they were planned, and the permissions they were checked against."""

    calls: list[PlannedCall]
    permissions: EffectivePermissions


class ToolPhase:
    """Answers the calls of one turn. Its methods return whether the turn continues. They raise StorageError."""

    def __init__(self, state: TurnState, committer: StepCommitter) -> None:
        self._state = state
        self._committer = committer
        self._world = state.dependencies.world
        self._conversation = state.position.conversation
        self._client = frozenset(tool.name for tool in state.input.client_tools)

    # --- a reply ---------------------------------------------------------------------------------------------------

    async def answer(
        self, planned: CallPlan, step_id: StepId, rows: tuple[Message, ...], model: ModelRecord, finish_reason: str
    ) -> bool:
        """Commits a reply, the last of `rows`, and answers its calls."""
        calls, commit = planned.calls, self._committer.commit
        if waiting := {each.parsed.call.id: each.awaits for each in calls if isinstance(each, AwaitingCall)}:
            state, request = self._state, approval_matching.request_row(rows[-1], waiting)
            waits = approval_matching.pending_of(request, state.input.earlier, state.position.conversation)
            return await commit(ask_entry(self._committer.frame(step_id), (*rows[:-1], request), model, waits))
        if any(isinstance(each, ExternalCall) for each in calls):
            await commit(reply_entry(self._committer.frame(step_id), rows, model))
            return await self._answer_one_by_one(step_id, calls)
        answers = tuple(CallToAnswer(each, self._world.ids.uuid()) for each in calls)
        ending = self._ending(calls, finish_reason, planned.permissions)
        return await commit(step_entry(self._committer.frame(step_id), rows, model, answers, ending))

    # --- calls of an earlier reply ---------------------------------------------------------------------------------

    async def answer_interrupted(self, reply: Message, left: tuple[ToolCall, ...]) -> bool:
        """Answers the calls that a crash left open.

        A call that runs inside the commit simply runs; how far one outside came is not known. Where a row of results
        is stored but cannot be read, nothing runs again.
        """
        state = self._state
        assert reply.step_id is not None
        earlier = [row for row in state.rows if row.step_id != reply.step_id]
        try:
            state.sink.cancellation.check()
            planned = await self.plan(reply.tool_calls, earlier, reply.step_id, self._decisions(reply))
        except Cancelled:
            await self._committer.end(StopReason.cancelled)
            return False
        open_ids = {call.id for call in left}
        unreadable = any(row.lost and row.role is Role.tool and row.step_id == reply.step_id for row in state.rows)

        def known(each: PlannedCall) -> ToolReturn | None:
            call = each.parsed.call
            return lost(call) if unreadable else interrupted(call) if isinstance(each, ExternalCall) else None

        uuid = self._world.ids.uuid
        answers = tuple(
            CallToAnswer(each, uuid(), known(each)) for each in planned.calls if each.parsed.call.id in open_ids
        )
        ending = self._ending(planned.calls, "tool_calls", planned.permissions)
        return await self._committer.commit(recover_entry(self._committer.frame(reply.step_id), answers, ending))

    async def take_answers(self, waited: PendingCalls) -> bool:
        """Commits the answers to calls that waited and runs the approved ones."""
        state, committer = self._state, self._committer
        request = next(row for row in state.rows if row.id == waited.request)
        assert request.step_id is not None
        new = tuple(answer for answer in state.input.answers if answer not in waited.answers)
        message_id, now = self._world.ids.new(MessageId), self._world.clock.now()
        rows = (answer_row(state.run, message_id, new, now),) if new else ()  # none when some come a second time
        waits = replace(waited, answers=state.input.answers)
        if approval_matching.left(request, waits):
            return await committer.commit(partial_answers_entry(committer.frame(request.step_id), rows, waited, waits))
        earlier = [row for row in state.rows if row.step_id != request.step_id]
        try:
            planned = await self.plan(request.tool_calls, earlier, request.step_id, self._decisions(request))
        except Cancelled:  # no answer was taken: the calls wait on
            await committer.end(StopReason.cancelled)
            return False
        done = [each for each in planned.calls if isinstance(each, AnsweredCall)]
        others = [each for each in planned.calls if not isinstance(each, AnsweredCall)]
        together = not any(isinstance(each, ExternalCall) for each in others)
        answers = tuple(CallToAnswer(each, self._world.ids.uuid()) for each in (*done, *(others if together else ())))
        ending = self._ending(planned.calls, "tool_calls", planned.permissions) if together else None
        frame = committer.frame(request.step_id)
        continues = await committer.commit(answers_entry(frame, rows, waited, answers, ending))
        state.waited = None
        if not continues or together:
            return continues
        return await self._answer_one_by_one(request.step_id, others, planned.calls)

    async def _answer_one_by_one(
        self, step_id: StepId, planned: Sequence[PlannedCall], of_step: Sequence[PlannedCall] | None = None
    ) -> bool:
        """Results are committed before the next calls begin. `of_step` are all calls, if some have a result."""
        continues, later, of_step = True, list(planned), list(of_step or planned)
        asked: list[tuple[ToolCall, ToolQuestions]] = []
        for batch in batches(planned):
            uuids, later = [self._world.ids.uuid() for _ in batch], later[len(batch) :]
            if isinstance(batch[0], ExternalCall):
                batch = await self._still_permitted(batch, of_step)
            try:
                done = await self._run_outside(batch, uuids, step_id)
            except Cancelled:
                await self._committer.end(StopReason.cancelled)
                return False
            answers = tuple(
                CallToAnswer(each, uuid) if ran is None else CallToAnswer(each, uuid, ran.result, ran.used)
                for each, uuid, ran in zip(batch, uuids, done, strict=True)
            )
            asked += ((each.parsed.call, ran.asks) for each, ran in zip(batch, done, strict=True) if ran and ran.asks)
            ending = None if later else self._ending(of_step, "tool_calls", self._known_permissions())
            frame = self._committer.frame(step_id)
            if ending is not None and asked and not frame.cancelled:
                request = self._question_row(asked, frame)
                waits = approval_matching.pending_of(request, self._state.input.earlier, self._conversation)
                return await self._committer.commit(question_entry(frame, answers, ending, request, waits))
            left = tuple(each.parsed.call for each in later)
            continues = await self._committer.commit(result_entry(frame, answers, left, ending))
            if not continues:
                break
        return continues

    def _question_row(self, asked: Sequence[tuple[ToolCall, ToolQuestions]], frame: EntryFrame) -> Message:
        """The request with which calls go on once a person has answered their questions: each is made again."""
        reply = next(row for row in reversed(self._state.rows) if row.is_reply and row.step_id == frame.step_id)
        calls = tuple(
            ToolCall(f"call_{self._world.ids.uuid().replace('-', '')}", call.name, call.arguments, questions=questions)
            for call, questions in asked
        )
        row = replace(
            reply,
            id=self._world.ids.new(MessageId),
            created_at=frame.at,
            content=tuple(Text(questions.text()) for _, questions in asked),
            tool_calls=calls,
            run_id=self._state.run.id,
        )
        return approval_matching.request_row(row, dict.fromkeys((call.id for call in calls), Awaits.approval))

    def _progress(self, call: ToolCall, step_id: StepId) -> Progress:
        """Tells the clients of the turn how far a call has come, up to a number of times."""
        told, state = 0, self._state

        def tell(done: float, total: float | None, message: str | None) -> None:
            nonlocal told
            told += 1
            if told <= PROGRESS_MAX and state.sink.is_open:
                at = self._world.clock.now()
                state.sink.emit(ToolProgress(state.run.id, step_id, at, call.id, call.name, done, total, message))

        return tell

    async def _run_outside(
        self, batch: Sequence[PlannedCall], uuids: Sequence[str], step_id: StepId
    ) -> Sequence[ExecutedCall | None]:
        """Runs those calls of a batch that run outside, all at once. Raises Cancelled."""
        state, running = self._state, list[tuple[ExternalCall, CallContext]]()
        now, run, agent = self._world.clock.now(), state.run, state.conversation.agent
        quota = self._known_permissions().quota
        for each, uuid in zip(batch, uuids, strict=True):
            if isinstance(each, ExternalCall):
                context = CallContext(
                    agent,
                    now,
                    uuid,
                    run.conversation_id,
                    chain=state.input.chain,
                    run_id=run.id,
                    step_id=step_id,
                    quota=quota,
                    answered=each.parsed.answered,
                    progress=self._progress(each.parsed.call, step_id),
                )
                running.append((each, context))
        if not running:
            state.sink.cancellation.check()
            return [None] * len(batch)
        state.meters = {each.parsed.call.id: context.meter for each, context in running}
        with state.sink.cancellation.abortable():
            done = iter(await run_together(running, self._world.clock.monotonic_ns))
        return [next(done) if isinstance(each, ExternalCall) else None for each in batch]

    # --- the plan --------------------------------------------------------------------------------------------------

    async def plan(
        self,
        calls: Iterable[ToolCall],
        rows: Sequence[Message],
        step_id: StepId,
        decisions: CallDecisions | None = None,
    ) -> CallPlan:
        """Decides how the calls of a reply are answered, and precomputes what they need. Raises Cancelled."""
        state, conversation = self._state, self._state.conversation
        loaded, runner = conversation.loaded, state.dependencies.runner
        tools = approval_matching.with_client(loaded.tools, state.input.client_tools)
        decisions = decisions or (CallDecisions(self._client) if self._client else NO_DECISIONS)
        permissions = await self._permissions()
        found = plan(calls, loaded.agent, tools, runner, rows, conversation.exits, decisions, permissions)
        if any(isinstance(each, TransactionalCall) and each.prepare for each in found):
            run, agent, now = state.run, conversation.agent, self._world.clock.now()
            context = CallContext(agent, now, "", run.conversation_id, run_id=run.id, step_id=step_id)
            with state.sink.cancellation.abortable():
                found = await precomputed(found, state.dependencies.precompute, context)
            permissions = await self._permissions()
            found = recheck(found, permissions)
        for each in found:
            _log_denied(each)
        return CallPlan(found, permissions)

    async def _still_permitted(self, batch: Sequence[PlannedCall], of_step: list[PlannedCall]) -> list[PlannedCall]:
        """The calls of a batch by the permissions and limits of now, replaced among all of the step."""
        checked = recheck(batch, await self._permissions())
        for before, now in zip(batch, checked, strict=True):
            if now is not before:
                of_step[of_step.index(before)] = now
                _log_denied(now)
        return checked

    async def _permissions(self) -> EffectivePermissions:
        """The permissions of this moment, read again if they may have changed. Raises StorageError."""
        state, world = self._state, self._world
        policy, live, conversation = state.dependencies.policy, state.live, state.conversation
        return await current_permissions(world.database, policy, live, conversation, world.clock.now())

    def _known_permissions(self) -> EffectivePermissions:
        """The permissions as of the last commit."""
        return self._state.conversation.permissions(self._state.dependencies.policy)

    def _decisions(self, reply: Message) -> CallDecisions | None:
        """The decisions on the calls of a reply, if it is the one that waited."""
        sent = self._state.input
        if reply.id != sent.request:
            return None
        return CallDecisions(self._client, {answer.call_id: answer for answer in sent.answers})

    def _ending(
        self, planned: Iterable[PlannedCall], finish_reason: str, permissions: EffectivePermissions
    ) -> TurnEnding:
        state, sent = self._state, self._state.input
        count, loaded = state.run.step_count, state.conversation.loaded
        return TurnEnding(
            tuple(map(_summary, planned)),
            finish_reason,
            sent.max_steps - count,
            made_in(state.rows),
            paused=state.dependencies.pauses.until(state.conversation.agent) is not None,
            more=count == 0 and bool(sent.messages),
            client=tuple(tool.name for tool in sent.client_tools),
            denied=denied_names(loaded.tools, permissions),
        )


def _summary(planned: PlannedCall) -> CallSummary:
    parsed = planned.parsed
    refused = isinstance(planned, RefusedCall) or (isinstance(planned, AnsweredCall) and planned.denied)
    bad_prefill = isinstance(planned, RefusedCall) and planned.bad_prefill
    return CallSummary(parsed.call.name, parsed.heartbeat, refused, bad_prefill)


def _log_denied(planned: PlannedCall) -> None:
    if isinstance(planned, RefusedCall) and planned.denied is not None:
        refusal, tool = planned.denied, planned.parsed.call.name
        _log.warning(
            "tool_call_refused",
            "Tool call refused by permissions or limits",
            tool=tool,
            by=refusal.layer or "limit",
            reason=refusal.reason,
        )
