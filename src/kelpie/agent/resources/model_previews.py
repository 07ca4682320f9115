"""Model previews API: the request that an agent's model would get, and questions to it that leave no trace.

Nothing here is written anywhere, and no turn waits for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kelpie.agent.compaction.window_guard import fitting
from kelpie.agent.definition import creation, loaded_agent
from kelpie.agent.live.live_agent import LiveConversation, chooser
from kelpie.agent.prompt.context import load_context
from kelpie.agent.prompt.prompt_inspection import InspectedPrompt, inspect_prompt
from kelpie.agent.prompt.rendering import prepare
from kelpie.agent.turn.model_call import request_for
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.agent import Agent, ModelChoice
from kelpie.core.conversations.messages import Message, NewMessage, Role, Text, Usage
from kelpie.core.errors import InvalidInput, ModelError, ModelFault
from kelpie.core.ids import AgentId, ConversationId, MessageId
from kelpie.core.settings.settings import Settings
from kelpie.llm.openai.chat_request import encode_request
from kelpie.llm.provider.completion import complete
from kelpie.llm.provider.interface import PreparedMessage, Reply, Request, ToolSchema
from kelpie.llm.routing.models import Models
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.conversations import conversations
from kelpie.world.database import Tx
from kelpie.world.world import World

INSTRUCTIONS = "Do what the message asks. Reply with the result only."
ANSWER_TOOL = "give_answer"


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """A model's answer to a single question."""

    content: str
    model: str
    usage: Usage


class ModelPreviews:
    """Agents of the caller's organization."""

    def __init__(self, world: World, models: Models, settings: Settings, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._models = models
        self._settings = settings
        self._organization = caller.organization_id

    async def payload(
        self, thread: AgentId | ConversationId, said: Sequence[NewMessage], *, deltas: bool = False
    ) -> bytes:
        """Request that the provider would get if these messages were sent to an agent or one of its conversations.

        Raises NotFound, InvalidInput, ModelError.
        """
        handle, request = await self._request(thread, said, deltas=deltas)
        return await self._models.payload(handle, request)

    async def prompt(self, thread: AgentId | ConversationId) -> InspectedPrompt | None:
        """The parts of the prompt that the next step of a thread would have. Raises NotFound, ModelError.

        A model that runs inside the server is sent nothing; its prompt is shown in the format of most others.
        """
        handle, request = await self._request(thread, ())
        try:
            body = await self._models.payload(handle, request)
        except InvalidInput:
            body = encode_request(request)
        return inspect_prompt(body)

    async def _request(
        self, thread: AgentId | ConversationId, said: Sequence[NewMessage], *, deltas: bool = False
    ) -> tuple[str, Request]:
        now = self._world.clock.now()
        await self._models.load()

        def read(tx: Tx) -> tuple[LiveConversation, list[PreparedMessage]]:
            lane = self._lane(tx, thread)
            context = load_context(tx, lane.agent, lane.conversation)
            window = lane.agent.model.context_window
            return lane, context.within(fitting(window, context, lane.frame(now).weight))

        lane, entries = await self._world.database.read(read)
        frame = lane.frame(now)
        agent = frame.agent
        entries += [prepare(self._message(agent.id, new), frame.spec) for new in said]
        handle = agent.model.handle
        model = handle.partition("/")[2]
        request = request_for(frame, frame.tools, model, entries, lane.allowed_tools(frame, ()), deltas=deltas)
        return handle, request

    def _lane(self, tx: Tx, thread: AgentId | ConversationId) -> LiveConversation:
        """The agent as it is seen in the thread."""
        if isinstance(thread, AgentId):
            row_ownership.agent(tx, self._organization, thread)
            agent_id, conversation = thread, ""
        else:
            found = conversations.get(tx, self._organization, thread)
            agent_id, conversation = found.agent_id, found.id
        loaded = loaded_agent.load_thread(tx, agent_id, conversation)
        return LiveConversation(conversation, loaded, chooser(self._models, self._settings.context_window))

    async def generate(
        self,
        agent_id: AgentId,
        prompt: str,
        *,
        system: str | None = None,
        model: str | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> GeneratedText:
        """Asks the agent's model, or another, one question; with a schema the answer is JSON of that form.

        Raises NotFound, InvalidInput, ModelError.
        """
        agent = await self._agent(agent_id)
        choice = await self._choice(agent.model, model)
        provider, name = self._models.provider(choice.handle)
        asked = self._message(agent_id, NewMessage(Role.user, (Text(prompt),)))
        tools = () if schema is None else (_answering(schema),)
        request = Request(
            model=name,
            system=INSTRUCTIONS if system is None else system,
            messages=(PreparedMessage(asked),),
            tools=tools,
            tool_choice=ANSWER_TOOL if tools else "auto",
            max_tokens=choice.max_tokens,
            temperature=choice.temperature,
            user=agent_id,
            options=choice.settings,
            consumer=agent.consumer,
        )
        reply = await complete(provider, request, handle=choice.handle)
        return GeneratedText(_answer(reply, structured=bool(tools)), name, reply.usage)

    async def _agent(self, agent_id: AgentId) -> Agent:
        def read(tx: Tx) -> Agent:
            row_ownership.agent(tx, self._organization, agent_id)
            return agents.get(tx, agent_id)

        return await self._world.database.read(read)

    async def _choice(self, own: ModelChoice, handle: str | None) -> ModelChoice:
        """The agent's own model, or the one that is named in its place."""
        if handle is None:
            await self._models.load(own.handle)
            return own
        return creation.choose_model(await self._models.resolve(handle), {}, self._settings.context_window)

    def _message(self, agent_id: AgentId, new: NewMessage) -> Message:
        now = self._world.clock.now()
        return Message(self._world.ids.new(MessageId), agent_id, new.role, now, new.content, name=new.name)


def _answering(schema: Mapping[str, Any]) -> ToolSchema:
    if schema.get("type") != "object":
        raise InvalidInput("response_schema", "must be a JSON schema of type 'object'")
    return ToolSchema(ANSWER_TOOL, "Returns the answer. Call it once, with the complete answer.", schema)


def _answer(reply: Reply, *, structured: bool) -> str:
    if structured and reply.tool_calls:
        return reply.tool_calls[0].arguments
    text = "\n".join(part.text for part in reply.content if isinstance(part, Text))
    if structured or not text:
        raise ModelError(ModelFault.malformed, "The model did not answer in the requested form.", detail=text)
    return text
