"""Rows that a turn writes: messages, steps and records of tool calls. Pure constructors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from kelpie.agent.journal.entries import CallToAnswer
from kelpie.agent.prompt.agent_types import Thoughts
from kelpie.agent.prompt.rendering import THINKING, packed_event, read_object
from kelpie.agent.prompt.synthetic_results import INTERRUPTED
from kelpie.agent.tool_calls.call_plan import AnsweredCall, PlannedCall, RefusedCall
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import (
    CallAnswer,
    Message,
    NewMessage,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)
from kelpie.core.conversations.runs import Run, Step, StepStatus, StopReason
from kelpie.core.errors import ModelError, ModelFault
from kelpie.core.ids import MessageId, OrganizationId, StepId
from kelpie.core.permissions.call_records import RAN, CallOutcome, CallRecord, ResourceUse
from kelpie.core.time import Micros
from kelpie.llm.provider.interface import Reply
from kelpie.tools.calls.capabilities import subject_of
from kelpie.world.ids import Ids


def input_row(run: Run, message: NewMessage, ids: Ids) -> Message:
    """A message of the client, as it enters the history."""
    return Message(
        id=ids.new(MessageId),
        agent_id=run.agent_id,
        role=message.role,
        created_at=run.created_at,
        content=message.content,
        conversation_id=run.conversation_id,
        name=message.name,
        otid=message.otid or ids.uuid(),
        sender_id=message.sender_id,
        group_id=message.group_id,
        run_id=run.id,
    )


def reply_row(run: Run, row_id: MessageId, step_id: StepId, reply: Reply, *, thoughts: Thoughts, at: Micros) -> Message:
    """The reply of the model; thoughts that came as an argument become a part of their own, unless they are off."""
    content, calls = _parts_of(reply, thoughts)
    return Message(
        id=row_id,
        agent_id=run.agent_id,
        role=Role.assistant,
        created_at=at,
        content=content,
        tool_calls=calls,
        conversation_id=run.conversation_id,
        run_id=run.id,
        step_id=step_id,
    )


def _parts_of(reply: Reply, way: Thoughts) -> tuple[tuple[Part, ...], tuple[ToolCall, ...]]:
    if way is Thoughts.plain:
        return reply.content, reply.tool_calls
    thoughts: list[Part] = []
    calls: list[ToolCall] = []
    for call in reply.tool_calls:
        arguments = read_object(call.arguments)
        if arguments is None or THINKING not in arguments:
            calls.append(call)
            continue
        thought = arguments.pop(THINKING)
        if isinstance(thought, str) and thought:
            thoughts.append(Reasoning(thought, native=False))
        calls.append(replace(call, arguments=orjson.dumps(arguments).decode()))
    if not calls or way is Thoughts.off:
        return reply.content, tuple(calls)
    # Text beside a call is reasoning for these types: answers to the user go through a tool.
    aloud = [Reasoning(p.text, native=False) if isinstance(p, Text) else p for p in reply.content]
    return (*aloud, *thoughts), tuple(calls)


def answer_row(run: Run, row_id: MessageId, answers: tuple[CallAnswer, ...], at: Micros) -> Message:
    """The answers to calls that waited. The model never sees this row: the answers are in the results."""
    return Message(
        id=row_id,
        agent_id=run.agent_id,
        role=Role.approval,
        created_at=at,
        conversation_id=run.conversation_id,
        run_id=run.id,
        answers=answers,
    )


def tool_row(
    run: Run,
    row_id: MessageId,
    step_id: StepId | None,
    results: tuple[ToolReturn, ...],
    at: Micros,
    ran: Sequence[str] | None = None,
) -> Message:
    """The row that answers calls: one per commit that answers any. It has the name of the first tool that `ran` here;
    None means that all did."""
    names = [result.name for result in results] if ran is None else ran
    return Message(
        id=row_id,
        agent_id=run.agent_id,
        role=Role.tool,
        created_at=at,
        tool_returns=results,
        conversation_id=run.conversation_id,
        name=next(iter(names), None),
        run_id=run.id,
        step_id=step_id,
    )


def nudge_row(run: Run, row_id: MessageId, step_id: StepId, nudge: str, at: Micros) -> Message:
    """The server's own message that the model may continue."""
    return Message(
        id=row_id,
        agent_id=run.agent_id,
        role=Role.user,
        created_at=at,
        content=(Text(packed_event("heartbeat", at, reason=nudge)),),
        conversation_id=run.conversation_id,
        run_id=run.id,
        step_id=step_id,
    )


def with_group(group_id: str, rows: Sequence[Message]) -> list[Message]:
    """The rows of a turn in a group: they get its id, and those of the agent get the agent as sender."""
    own = (Role.assistant, Role.tool)
    return [
        replace(row, group_id=group_id, sender_id=row.agent_id if row.role in own else row.sender_id) for row in rows
    ]


def call_records(
    organization: OrganizationId,
    run: Run,
    step_id: StepId,
    at: Micros,
    answered: Iterable[tuple[CallToAnswer, ToolReturn, ResourceUse]],
) -> tuple[CallRecord, ...]:
    """The records of calls with their results, in their order."""
    return tuple(_call_record(organization, run, step_id, at, *each) for each in answered)


def _call_record(
    organization: OrganizationId,
    run: Run,
    step_id: StepId,
    at: Micros,
    answered: CallToAnswer,
    result: ToolReturn,
    used: ResourceUse,
) -> CallRecord:
    planned, outcome = answered.planned, _outcome(answered.planned, result)
    call, tool = planned.parsed.call, planned.parsed.tool
    subject = None if tool is None else subject_of(tool)
    refusal = planned.denied if isinstance(planned, RefusedCall) else None
    return CallRecord(
        organization,
        call.name,
        None if subject is None else subject.kind,
        outcome,
        at,
        run.agent_id,
        run.id,
        step_id,
        call.id,
        (tool.id or None) if tool else None,
        used,
        counted=outcome in RAN and not result.untried and subject is not None and not subject.harmless,
        reason=refusal.reason if refusal else None,
    )


def _outcome(planned: PlannedCall, result: ToolReturn) -> CallOutcome:
    match planned:
        case RefusedCall(denied=refusal) if refusal is not None:
            return CallOutcome.refused
        case AnsweredCall(denied=True):
            return CallOutcome.denied
        case RefusedCall(untried=True):
            return CallOutcome.invalid
        case _ if result.untried or result.text == INTERRUPTED:  # it came after a pause, or a crash left it open
            return CallOutcome.interrupted
        case _:
            return CallOutcome.success if result.ok else CallOutcome.error


def step_record(run: Run, agent: Agent, step_id: StepId, status: StepStatus, at: Micros) -> Step:
    provider, _, model = agent.model.handle.partition("/")
    return Step(
        id=step_id,
        run_id=run.id,
        agent_id=run.agent_id,
        created_at=at,
        status=status,
        provider_name=provider,
        model=model,
        model_handle=agent.model.handle,
        context_window_limit=agent.model.context_window,
        project_id=agent.project_id,
    )


def answered_by(step: Step, reply: Reply) -> Step:
    """The step, naming the model that really answered when another stood in for the agent's own."""
    return step if reply.answered_by is None else named_after(step, reply.answered_by)


def named_after(step: Step, handle: str) -> Step:
    """The step as one of this model."""
    provider, _, model = handle.partition("/")
    return replace(step, provider_name=provider, model=model, model_handle=handle)


_REASONS = {
    ModelFault.malformed: StopReason.invalid_llm_response,
    ModelFault.insufficient_credits: StopReason.insufficient_credits,
    ModelFault.instructions_overflow: StopReason.context_window_overflow_in_system_prompt,
}


def reason_for(error: ModelError) -> StopReason:
    return _REASONS.get(error.kind, StopReason.llm_api_error)


def described(error: ModelError) -> Mapping[str, Any]:
    """The error as it is kept on the run and the step."""
    return {"type": error.kind.value, "message": error.message, "detail": error.detail, "hint": error.hint}
