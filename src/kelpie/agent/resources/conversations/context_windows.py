"""Context window API: its usage, and compaction on request, in any conversation of an agent."""

from collections.abc import Mapping
from typing import Any

from kelpie.actors.dispatcher import Dispatcher
from kelpie.agent.compaction import window_usage as overview
from kelpie.agent.compaction.compactor import CompactionResult
from kelpie.agent.compaction.window_usage import WindowUsage
from kelpie.agent.turn.activation import Activation
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.ids import AgentId, ConversationId
from kelpie.storage.accounts import row_ownership
from kelpie.storage.conversations import conversations
from kelpie.world.database import Tx
from kelpie.world.world import World


class ContextWindows:
    """Agents of the caller's organization."""

    def __init__(self, world: World, dispatcher: Dispatcher[Activation], caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._dispatcher = dispatcher
        self._organization = caller.organization_id

    async def overview(self, agent_id: AgentId, conversation: ConversationId | None = None) -> WindowUsage:
        """Usage of the window, in one of the agent's conversations or its default one. Raises NotFound."""
        now = self._world.clock.now()

        def read(tx: Tx) -> WindowUsage:
            row_ownership.agent(tx, self._organization, agent_id)
            seen = overview.of_agent(tx, agent_id, conversation or "", now)
            _ = seen.tokens  # counted here, where reads run, and kept: the texts may be long
            return seen

        return await self._world.database.read(read)

    async def compact(
        self, thread: AgentId | ConversationId, given: Mapping[str, Any] | None = None
    ) -> CompactionResult:
        """Compacts a conversation in its turn, with these settings over the agent's own.

        Raises NotFound, InvalidInput, CallerError when there is too little to compact, ModelError, StorageError, and
        what loading or a full mailbox raises.
        """
        agent_id, lane = await self._world.database.read(lambda tx: self._find(tx, thread))
        return await self._dispatcher.submit(agent_id, lane, lambda activation: activation.compact(lane, given))

    def _find(self, tx: Tx, thread: AgentId | ConversationId) -> tuple[AgentId, str]:
        if isinstance(thread, AgentId):
            row_ownership.agent(tx, self._organization, thread)
            return thread, ""
        return conversations.get(tx, self._organization, thread).agent_id, thread
