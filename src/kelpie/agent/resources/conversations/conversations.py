"""Conversations API: open a conversation of an agent, fork, read, change and close it.

A conversation begins with its own copy of the agent's instructions. What is said in one never shows in another, except
that a fork begins with what its origin's model sees.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kelpie.agent.definition.loaded_agent import directories
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.prompt.rendering import system_text
from kelpie.agent.resources.conversations.conversation_opening import (
    ISOLATED_MAX,
    ConversationOpening,
    labelled,
    write_fork,
)
from kelpie.agent.tool_calls.approval_withdrawal import withdraw
from kelpie.agent.turn.active_turns import ActiveTurns
from kelpie.agent.turn.send_request import DEFAULT_LANE
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.conversations.conversations import Conversation, ConversationQuery, NewConversation, ThreadQuery
from kelpie.core.conversations.messages import Message, Text
from kelpie.core.errors import Conflict, InvalidInput, NotFound
from kelpie.core.ids import AgentId, ConversationId, MessageId
from kelpie.llm.routing.models import Models
from kelpie.storage.agents import agents
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.conversations import approvals, contexts, messages, thread_messages
from kelpie.storage.conversations import conversations as rows
from kelpie.world.database import Tx
from kelpie.world.world import World

DELETED = "The conversation was deleted before the request was answered."


class Conversations:
    """Conversations of the caller's organization."""

    def __init__(
        self,
        world: World,
        models: Models,
        live_agents: LiveAgents,
        underway: ActiveTurns,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._models = models
        self._live_agents = live_agents
        self._underway = underway
        self._caller = caller
        self._organization = caller.organization_id

    async def create(self, agent_id: AgentId, new: NewConversation) -> Conversation:
        """Opens a thread. Raises NotFound (agent, model), InvalidInput (model, a label the agent has not)."""
        labels = tuple(dict.fromkeys(new.isolated_labels))
        if len(labels) > ISOLATED_MAX:
            raise InvalidInput("isolated_block_labels", f"give at most {ISOLATED_MAX} labels")
        new = replace(new, model=await self._model(new.model))
        opening = ConversationOpening.draw(self._world, self._caller, len(labels))

        def write(tx: Tx) -> Conversation:
            agent = agents.owned(tx, self._organization, agent_id)
            originals = [labelled(tx, agent_id, label) for label in labels]
            made = replace(opening.record(agent_id), **_described(new))
            return opening.write(tx, agent, made, originals, ())

        return await self._world.database.transact(write)

    async def fork(
        self, origin: ConversationId | AgentId, *, up_to: MessageId | None = None, hidden: bool = False
    ) -> Conversation:
        """A new thread that begins with what the model sees of another, up to a message if one is named.

        The origin is a conversation, or an agent for its default one. Raises NotFound.
        """
        opening = ConversationOpening.draw(self._world, self._caller, ISOLATED_MAX)

        return await self._world.database.transact(
            lambda tx: write_fork(tx, opening, origin, up_to=up_to, hidden=hidden)
        )

    async def lane(self, thread: ConversationId | AgentId) -> tuple[AgentId, str]:
        """Agent and lane of a thread. Raises NotFound for a conversation; does not check that an agent exists."""
        if isinstance(thread, AgentId):
            return thread, DEFAULT_LANE
        found = await self._world.database.read(lambda tx: rows.get(tx, self._organization, thread))
        return found.agent_id, found.id

    async def get(self, conversation_id: ConversationId) -> tuple[Conversation, tuple[MessageId, ...]]:
        """The conversation, and which messages its model sees. Raises NotFound."""

        def read(tx: Tx) -> tuple[Conversation, tuple[MessageId, ...]]:
            found = rows.get(tx, self._organization, conversation_id)
            return found, contexts.ids(tx, found.agent_id, found.id)

        return await self._world.database.read(read)

    async def update(self, conversation_id: ConversationId, changes: Mapping[str, Any]) -> Conversation:
        """Changes what is given, by field name; None clears. Raises NotFound, InvalidInput."""
        if changes.get("model") is not None:
            changes = {**changes, "model": await self._model(changes["model"])}
        now = self._world.clock.now()

        def write(tx: Tx) -> Conversation:
            rows.get(tx, self._organization, conversation_id)
            rows.change(tx, conversation_id, {**changes, "updated_at": now, "last_updated_by_id": self._caller.user_id})
            return rows.get(tx, self._organization, conversation_id)

        changed = await self._world.database.transact(write)
        self._live_agents.reload((changed.agent_id,))
        return changed

    async def delete(self, conversation_id: ConversationId) -> None:
        """Deletes a conversation; its messages stay in the agent's history. Raises NotFound.

        A turn that runs in it stops waiting for its model, ends, and adds only the results of running tools; calls that
        wait in it are not made.
        """
        now = self._world.clock.now()

        def write(tx: Tx) -> AgentId:
            found = rows.get(tx, self._organization, conversation_id)
            if pending := approvals.get(tx, found.agent_id, found.id):
                withdraw(tx, pending, DELETED, now)
            rows.remove(tx, found, now)
            return found.agent_id

        agent_id = await self._world.database.transact(write)
        self._live_agents.reload((agent_id,))
        self._underway.leave(agent_id, conversation_id)

    async def messages(self, conversation_id: ConversationId, query: ThreadQuery) -> list[Message]:
        """The messages of a thread in the order asked for; none for a thread that does not exist."""

        def read(tx: Tx) -> list[Message]:
            try:
                rows.get(tx, self._organization, conversation_id)
            except NotFound:
                return []
            return thread_messages.read(tx, conversation_id, query)

        return await self._world.database.read(read)

    async def recompile(self, conversation_id: ConversationId, dry_run: bool) -> str:
        """The thread's instructions as they are built now, stored unless it is a dry run. Raises NotFound, Conflict."""
        now = self._world.clock.now()

        def write(tx: Tx) -> str:
            found = rows.get(tx, self._organization, conversation_id)
            shown, _ = block_attachments.seen(tx, found.agent_id, found.id)
            agent = agents.get(tx, found.agent_id)
            text = system_text(agent, shown, now, found.id, directories(tx, agent))
            if not dry_run:
                system = contexts.instructions(tx, found.agent_id, found.id)
                if system is None:
                    raise Conflict(f"{conversation_id} has no system message any more. Create a new conversation.")
                messages.rewrite(tx, system, (Text(text),))
            return text

        database = self._world.database
        return await (database.read(write) if dry_run else database.transact(write))

    async def _model(self, handle: str | None) -> str | None:
        """The handle as the provider lists it. Raises InvalidInput, NotFound, ModelError."""
        return None if handle is None else (await self._models.resolve(handle)).handle

    async def page(self, query: ConversationQuery) -> list[Conversation]:
        """Raises NotFound for an unknown cursor."""
        return await self._world.database.read(lambda tx: rows.select_conversations(tx, self._organization, query))


def _described(new: NewConversation) -> dict[str, Any]:
    return {
        "summary": new.summary,
        "description": new.description,
        "model": new.model,
        "model_settings": new.model_settings,
        "context_window_limit": new.context_window_limit,
        "hidden": new.hidden,
    }
