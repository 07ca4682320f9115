"""Model call of a turn: the prompt from what is in memory, previews while the reply comes, the reply at the end.

It checks budget and context window before it asks, and reads from the database only what changed outside the turn.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from kelpie.agent.compaction.window_guard import WindowGuard
from kelpie.agent.events.previews import Preview
from kelpie.agent.live.live_agent import PromptFrame
from kelpie.agent.live.reload import catch_up
from kelpie.agent.live.spending import check_budget, check_storage
from kelpie.agent.tool_calls.approval_matching import waiting_names
from kelpie.agent.tool_calls.tool_rules import AllowedTools, one_at_a_time
from kelpie.agent.turn.turn_state import TurnState
from kelpie.core.agents.agent import Agent
from kelpie.core.errors import CallerError, ModelError, ModelFault
from kelpie.core.ids import MessageId, StepId
from kelpie.core.time import Micros
from kelpie.llm.provider.interface import ModelInfo, PreparedMessage, Reply, Request, ToolSchema
from kelpie.llm.routing.fallback import chain_of

QUOTA_EVERY = 8  # commits of a turn, so that most steps read nothing for it


@dataclass(frozen=True, slots=True)
class ModelCallResult:
    """A reply of the model. `first_ns` is how long its first piece took, `total_ns` the whole.

    `at` is when its message was made: a preview has shown that time already, and it stays.
    """

    frame: PromptFrame  # that it was asked with
    reply: Reply
    message_id: MessageId
    step_id: StepId
    previewed: bool
    first_ns: int
    total_ns: int
    at: Micros
    model: ModelInfo | None  # the agent's own, as it was known when it was asked


class ModelCall:
    """Asks the model of one turn."""

    def __init__(self, state: TurnState, guard: WindowGuard) -> None:
        self._state = state
        self._guard = guard
        self._world = state.dependencies.world

    async def ask(self) -> ModelCallResult:
        """The next reply. Raises Forgotten, BudgetExhausted, ModelError, Cancelled, StorageError."""
        state, dependencies, database = self._state, self._state.dependencies, self._world.database
        conversation, client = state.conversation, state.input.client_tools
        context = await catch_up(database, conversation, state.position)
        permissions, now = conversation.permissions(dependencies.policy), self._world.clock.now()
        frame = conversation.frame(now)
        models, choice = dependencies.models.of(frame.agent.organization_id), frame.agent.model
        await models.load(choice.handle, *chain_of(choice.handle, choice.settings, ()))
        if state.position.number % QUOTA_EVERY == 1:  # a turn that just begins has its commit check it
            await check_storage(database, dependencies.quotas, frame.agent.organization_id)
        if permissions.quota.tokens is not None or frame.agent.budget is not None:
            await check_budget(database, models, state.live, frame.agent, permissions, now)
        entries = self._guard.show(context, frame, state.new_rows)
        allowed = conversation.allowed_tools(frame, state.rows, client, permissions)
        schemas = conversation.schemas(frame, client)
        with state.sink.cancellation.abortable(asks=True):
            return await self._stream(frame, schemas, entries, allowed)

    async def _stream(
        self,
        frame: PromptFrame,
        schemas: Sequence[ToolSchema],
        entries: Sequence[PreparedMessage],
        allowed: AllowedTools,
    ) -> ModelCallResult:
        """Emits previews if the client wants them, unless the tool rules change the reply. Raises ModelError."""
        state, clock, ids = self._state, self._world.clock, self._world.ids
        models, handle = state.dependencies.models.of(frame.agent.organization_id), frame.agent.model.handle
        await models.search_servers(handle)
        try:
            provider, model = models.provider(handle)
        except CallerError as error:
            raise ModelError(ModelFault.bad_request, str(error), hint="Choose another model for the agent.") from error
        known, message_id, step_id = models.known(handle), ids.new(MessageId), ids.new(StepId)
        started, began_at = clock.monotonic_ns(), clock.now()
        preview = None
        if state.input.deltas and not allowed.prefilled:
            waiting = waiting_names(frame.agent.tool_rules, state.input.client_tools)
            thoughts = state.conversation.thoughts
            preview = Preview(message_id, step_id, began_at, thoughts, state.sink.emit, waiting)
        request = request_for(frame, schemas, model, entries, allowed, deltas=preview is not None)
        reply: Reply | None = None
        first_ns: int | None = None
        async with aclosing(provider.stream(request)) as events:
            async for event in events:
                if first_ns is None:
                    first_ns = clock.monotonic_ns() - started
                if isinstance(event, Reply):
                    reply = event
                elif preview is not None:
                    preview.take(event)
        if reply is None:
            raise ModelError(ModelFault.malformed, "The model stopped before its answer was complete.")
        if preview is not None:
            preview.finish()
        previewed = preview is not None and preview.started
        took_ns, at = clock.monotonic_ns() - started, began_at if previewed else clock.now()
        return ModelCallResult(frame, reply, message_id, step_id, previewed, first_ns or 0, took_ns, at, known)


def request_for(
    frame: PromptFrame,
    schemas: Sequence[ToolSchema],
    model: str,
    entries: Sequence[PreparedMessage],
    allowed: AllowedTools,
    *,
    deltas: bool,
) -> Request:
    """The request for these entries, with the agent's instructions, settings, and the tools now allowed."""
    agent, choice = frame.agent, frame.agent.model
    tools, tool_choice = _offer(schemas, allowed, must_call_tool=frame.spec.must_call_tool)
    return Request(
        model=model,
        system=frame.system,
        messages=entries,
        tools=tools,
        tool_choice=tool_choice,
        parallel_tool_calls=choice.parallel_tool_calls and not one_at_a_time(agent.tool_rules),
        max_tokens=choice.max_tokens,
        temperature=choice.temperature,
        deltas=deltas,
        user=agent.id,
        options=_options(agent),
        consumer=agent.consumer,
    )


def _options(agent: Agent) -> Mapping[str, Any]:
    """The settings of the model, with the agent's response format unless they have one of their own."""
    settings, form = agent.model.settings, agent.response_format
    if form is None or settings.get("response_format") is not None:
        return settings
    return {**settings, "response_format": form}


def _offer(
    schemas: Sequence[ToolSchema], allowed: AllowedTools, *, must_call_tool: bool
) -> tuple[Sequence[ToolSchema], str]:
    """The tools that the model is offered, and whether it must call one."""
    offered = tuple(schema for schema in schemas if schema.name in allowed.allowed)
    if not offered:  # some providers take no history with calls in it when there are no tools at all
        return schemas, "none" if schemas else "auto"
    if allowed.forced and len(offered) == 1:
        return offered, offered[0].name
    return offered, "required" if allowed.forced or must_call_tool else "auto"
