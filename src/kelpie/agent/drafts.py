"""The door to an agent's model outside of any turn: what it would be asked, and questions that leave no trace.

Nothing here is written anywhere, and no turn waits for it.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from kelpie.agent import making, state
from kelpie.agent.asking import request_for
from kelpie.agent.conversations import seen_blocks
from kelpie.agent.prompt import prepare
from kelpie.agent.state import Hot
from kelpie.core.accounts import DEFAULT_CALLER, Caller
from kelpie.core.agents import Agent, ModelChoice
from kelpie.core.blocks import Block
from kelpie.core.conversations import Conversation
from kelpie.core.errors import InvalidInput, ModelError, ModelFault
from kelpie.core.ids import AgentId, ConversationId, MessageId
from kelpie.core.messages import Message, NewMessage, Role, Text, Usage
from kelpie.core.settings import Settings
from kelpie.llm.models import Models
from kelpie.llm.port import Prepared, Reply, Request, ToolSchema
from kelpie.storage import agents, blocks, conversations, scope
from kelpie.storage.heads import Claim, Node
from kelpie.world.database import Tx
from kelpie.world.world import World

INSTRUCTIONS = "Do what the message asks, and answer with the result alone."
ANSWER_TOOL = "give_answer"
_NOBODY = Node("", 0)


@dataclass(frozen=True, slots=True)
class Generated:
    """A model's answer to a single question."""

    content: str
    model: str
    usage: Usage


class Drafts:
    """Agents of the caller's organisation."""

    def __init__(self, world: World, models: Models, settings: Settings, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._models = models
        self._settings = settings
        self._organization = caller.organization_id

    async def payload(
        self, thread: AgentId | ConversationId, said: Sequence[NewMessage], *, deltas: bool = False
    ) -> bytes:
        """What the provider would be sent if these messages were, to an agent or in one of its conversations.

        Raises NotFound, InvalidInput, ModelError.
        """
        agent, shown, conversation = await self._world.database.read(lambda tx: self._seen(tx, thread))
        if conversation is not None:
            agent = replace(agent, model=await self._choice(agent.model, conversation.model, conversation))
        now = self._world.clock.now()

        def read(tx: Tx) -> tuple[Hot, list[Prepared]]:
            hot = Hot(Claim(agent.id, 0, _NOBODY), replace(state.load(tx, agent), blocks=tuple(shown)))
            context = state.load_context(tx, agent, "" if conversation is None else conversation.id)
            return hot, context.within(hot.history_chars(now))

        hot, entries = await self._world.database.read(read)
        entries += [prepare(self._message(agent.id, new), hot.spec) for new in said]
        handle = agent.model.handle
        model, system = handle.partition("/")[2], hot.system(now)
        request = request_for(hot, model, entries, hot.verdict(()), deltas=deltas, system=system)
        return await self._models.payload(handle, request)

    def _seen(self, tx: Tx, thread: AgentId | ConversationId) -> tuple[Agent, Sequence[Block], Conversation | None]:
        """Whose thread it is, and which blocks are seen in it."""
        if isinstance(thread, AgentId):
            scope.agent(tx, self._organization, thread)
            return agents.get(tx, thread), blocks.of_agent(tx, thread), None
        found = conversations.get(tx, self._organization, thread)
        own = [blocks.get(tx, block_id) for block_id in found.isolated_block_ids]
        return agents.get(tx, found.agent_id), seen_blocks(tx, found.agent_id, own), found

    async def generate(
        self,
        agent_id: AgentId,
        prompt: str,
        *,
        system: str | None = None,
        model: str | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Generated:
        """Asks the agent's model, or another, one question; with a schema the answer is JSON of that form.

        Raises NotFound, InvalidInput, ModelError.
        """
        choice = await self._choice((await self._agent(agent_id)).model, model)
        provider, name = self._models.provider(choice.handle)
        asked = self._message(agent_id, NewMessage(Role.user, (Text(prompt),)))
        tools = () if schema is None else (_answering(schema),)
        request = Request(
            model=name,
            system=INSTRUCTIONS if system is None else system,
            messages=(Prepared(asked),),
            tools=tools,
            tool_choice=ANSWER_TOOL if tools else "auto",
            max_tokens=choice.max_tokens,
            temperature=choice.temperature,
            user=agent_id,
            options=choice.settings,
        )
        async with aclosing(provider.stream(request)) as events:
            async for event in events:
                if isinstance(event, Reply):
                    return Generated(_answer(event, structured=bool(tools)), name, event.usage)
        raise ModelError(ModelFault.malformed, "The model's answer ended before it was complete.")

    async def _agent(self, agent_id: AgentId) -> Agent:
        def read(tx: Tx) -> Agent:
            scope.agent(tx, self._organization, agent_id)
            return agents.get(tx, agent_id)

        return await self._world.database.read(read)

    async def _choice(
        self, own: ModelChoice, handle: str | None, conversation: Conversation | None = None
    ) -> ModelChoice:
        """The agent's own model, or the one that is named in its place with what the conversation asks of it."""
        given: dict[str, Any] = {}
        if conversation is not None:
            given = {
                "model_settings": conversation.model_settings,
                "context_window_limit": conversation.context_window_limit,
            }
        if handle is None and not any(given.values()):
            return own
        return making.choose_model(
            await self._models.resolve(handle or own.handle), given, self._settings.context_window
        )

    def _message(self, agent_id: AgentId, new: NewMessage) -> Message:
        now = self._world.clock.now()
        return Message(self._world.ids.new(MessageId), agent_id, new.role, now, new.content, name=new.name)


def _answering(schema: Mapping[str, Any]) -> ToolSchema:
    if schema.get("type") != "object":
        raise InvalidInput("response_schema", "must be a JSON schema of type 'object'")
    return ToolSchema(ANSWER_TOOL, "Gives the answer. Call it once, with the whole answer.", schema)


def _answer(reply: Reply, *, structured: bool) -> str:
    if structured and reply.tool_calls:
        return reply.tool_calls[0].arguments
    text = "\n".join(part.text for part in reply.content if isinstance(part, Text))
    if structured or not text:
        raise ModelError(ModelFault.malformed, "The model gave no answer of the form that was asked for.", detail=text)
    return text
