"""One model call: the prompt from what the activation holds, previews as the answer comes, the reply at the end."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from kelpie.agent.events.previews import Preview
from kelpie.agent.events.turn_events import TurnEvent
from kelpie.agent.live.live_agent import LiveConversation
from kelpie.agent.tool_calls.approval_matching import waiting_names
from kelpie.agent.tool_calls.tool_rules import AllowedTools, one_at_a_time
from kelpie.core.conversations.approvals import ClientTool
from kelpie.core.errors import CallerError, ModelError, ModelFault
from kelpie.core.ids import MessageId, StepId
from kelpie.core.time import Micros
from kelpie.llm.provider.interface import Prepared, Reply, Request, ToolSchema
from kelpie.llm.routing.models import Models
from kelpie.world.world import World


@dataclass(frozen=True, slots=True)
class ModelCallResult:
    """An answered model call. `first_ns` is how long its first piece took, `total_ns` the whole.

    `at` is when its message was made: a preview has told it already, and it stays.
    """

    reply: Reply
    message_id: MessageId
    step_id: StepId
    previewed: bool
    first_ns: int
    total_ns: int
    at: Micros


async def ask(
    world: World,
    models: Models,
    lane: LiveConversation,
    entries: Sequence[Prepared],
    allowed: AllowedTools,
    listen: Callable[[TurnEvent], None] | None,
    client: Sequence[ClientTool] = (),
) -> ModelCallResult:
    """Asks the agent's model; `listen` gets previews, unless the tool rules change the reply. Raises ModelError."""
    try:
        provider, model = models.provider(lane.agent.model.handle)
    except CallerError as error:
        raise ModelError(ModelFault.bad_request, str(error), hint="Choose another model for the agent.") from error
    message_id, step_id = world.ids.new(MessageId), world.ids.new(StepId)
    started, began_at = world.clock.monotonic_ns(), world.clock.now()
    preview = (
        Preview(
            message_id,
            step_id,
            began_at,
            lane.speaks_in_calls,
            listen,
            waiting_names(lane.agent.tool_rules, client),
        )
        if listen is not None and not allowed.prefilled
        else None
    )
    system = lane.system(world.clock.now())
    request = request_for(lane, model, entries, allowed, deltas=preview is not None, system=system, client=client)
    reply: Reply | None = None
    first_ns: int | None = None
    async with aclosing(provider.stream(request)) as events:
        async for event in events:
            if first_ns is None:
                first_ns = world.clock.monotonic_ns() - started
            if isinstance(event, Reply):
                reply = event
            elif preview is not None:
                preview.take(event)
    if reply is None:
        raise ModelError(ModelFault.malformed, "The model stopped before its answer was complete.")
    if preview is not None:
        preview.finish()
    previewed = preview is not None and preview.started
    took_ns, at = world.clock.monotonic_ns() - started, began_at if previewed else world.clock.now()
    return ModelCallResult(reply, message_id, step_id, previewed, first_ns or 0, took_ns, at)


def request_for(
    lane: LiveConversation,
    model: str,
    entries: Sequence[Prepared],
    allowed: AllowedTools,
    *,
    deltas: bool,
    system: str,
    client: Sequence[ClientTool] = (),
) -> Request:
    """What the model is asked: these entries, with the agent's instructions, settings, and the tools now allowed."""
    choice = lane.agent.model
    tools, tool_choice = _offer(lane, allowed, client)
    return Request(
        model=model,
        system=system,
        messages=entries,
        tools=tools,
        tool_choice=tool_choice,
        parallel_tool_calls=choice.parallel_tool_calls and not one_at_a_time(lane.agent.tool_rules),
        max_tokens=choice.max_tokens,
        temperature=choice.temperature,
        deltas=deltas,
        user=lane.agent.id,
        options=_options(lane),
    )


def _options(lane: LiveConversation) -> Mapping[str, Any]:
    """The settings of the model; the form that the agent's answers have, unless they say another."""
    settings, form = lane.agent.model.settings, lane.agent.response_format
    if form is None or settings.get("response_format") is not None:
        return settings
    return {**settings, "response_format": form}


def _offer(
    lane: LiveConversation, allowed: AllowedTools, client: Sequence[ClientTool]
) -> tuple[Sequence[ToolSchema], str]:
    """The tools that the model is offered, and whether it must call one."""
    schemas = lane.schemas(client)
    offered = tuple(schema for schema in schemas if schema.name in allowed.allowed)
    if not offered:  # some providers take no history with calls in it when there are no tools at all
        return schemas, "none" if schemas else "auto"
    if allowed.forced and len(offered) == 1:
        return offered, offered[0].name
    return offered, "required" if allowed.forced or lane.spec.must_call_tool else "auto"
