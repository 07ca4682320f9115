"""Histories API: read, empty and repair the histories of agents, and compile their instructions again."""

from collections.abc import Callable

from kelpie.agent.definition import creation, loaded_agent
from kelpie.agent.journal.history_repair import repair as repair_history
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.maintenance.memory_changes import MemoryChanges, begin_conversations, begin_history
from kelpie.agent.prompt.agent_types import spec_of
from kelpie.agent.prompt.rendering import system_text
from kelpie.agent.resources.agents import Agents
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.agent import EVERYTHING, Agent, AgentView
from kelpie.core.conversations.messages import Message, MessageQuery, Text
from kelpie.core.errors import Conflict
from kelpie.core.ids import AgentId, MessageId
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.conversations import approvals, contexts, conversations, messages
from kelpie.storage.conversations.messages import MessageVersion
from kelpie.storage.runs import unfinished
from kelpie.storage.views import agents as agent_views
from kelpie.world.database import Tx
from kelpie.world.world import World


class Histories:
    """Histories of the agents of the caller's organization."""

    def __init__(
        self,
        world: World,
        agents: Agents,
        live_agents: LiveAgents,
        memory_changes: MemoryChanges,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._agents = agents
        self._live_agents = live_agents
        self._memory_changes = memory_changes
        self._organization = caller.organization_id

    async def messages(self, agent_id: AgentId, query: MessageQuery) -> list[Message]:
        """Messages of an agent, oldest first. Raises NotFound for an unknown agent or cursor."""

        def read(tx: Tx) -> list[Message]:
            row_ownership.agent(tx, self._organization, agent_id)
            return messages.select_of_agent(tx, agent_id, query)

        return await self._world.database.read(read)

    async def message_versions(
        self, agent_id: AgentId, query: MessageQuery, size_of: Callable[[MessageVersion], int | None]
    ) -> list[tuple[MessageVersion, Message | None]]:
        """The same by version, for a caller that keeps messages: those whose sizes it knows are not read."""

        def read(tx: Tx) -> list[tuple[MessageVersion, Message | None]]:
            row_ownership.agent(tx, self._organization, agent_id)
            return messages.select_versions(tx, agent_id, query, size_of)

        return await self._world.database.read(read)

    async def message(self, message_id: MessageId) -> Message:
        """Raises NotFound."""

        def read(tx: Tx) -> Message:
            row_ownership.message(tx, self._organization, message_id)
            return messages.get(tx, message_id)

        return await self._world.database.read(read)

    async def reset(self, agent_id: AgentId, add_default_initial: bool) -> AgentView:
        """Empties what the model sees and deletes the history.

        Raises NotFound, and Conflict for a large history while a turn runs.
        """

        def read(tx: Tx) -> tuple[Agent, int]:
            agent = agents.owned(tx, self._organization, agent_id)
            return agent, messages.count_of_agent(tx, agent_id) + len(conversations.live_of_agent(tx, agent_id))

        agent, count = await self._world.database.read(read)
        now, spec = self._world.clock.now(), spec_of(agent.agent_type)
        first = creation.first_messages(agent_id, spec, None if add_default_initial else (), self._world.ids, now)

        def owned(tx: Tx) -> None:
            row_ownership.agent(tx, self._organization, agent_id)

        def idle(tx: Tx) -> None:
            owned(tx)
            if left := unfinished.unfinished_of(tx, agent_id):
                raise Conflict(f"{agent_id} has an active run ({left[0].run.id}). Wait until it ends, or cancel it.")

        if self._memory_changes.is_long(count):
            await self._memory_changes.reset(agent_id, self._organization, first, now, idle)
            return await self._agents.get(agent_id)

        def write(tx: Tx) -> AgentView:
            owned(tx)
            emptied = conversations.live_of_agent(tx, agent_id)
            begin_history(tx, agent_id, first)
            begin_conversations(tx, agent_id, emptied, first)
            return agent_views.one(tx, agent_id, EVERYTHING, self._world.keyring)

        view = await self._world.database.transact(write)
        self._live_agents.forget_context((agent_id,))
        return self._agents.with_status(view)

    async def recompile(self, agent_id: AgentId, dry_run: bool) -> str:
        """The system message as it is built now, and unless it is a dry run stores it. Raises NotFound, Conflict."""
        now = self._world.clock.now()

        def write(tx: Tx) -> str:
            loaded = loaded_agent.load(tx, agents.owned(tx, self._organization, agent_id))
            text = system_text(loaded.agent, loaded.blocks, now, directories=loaded.directories)
            if not dry_run:
                system = contexts.instructions(tx, agent_id)
                if system is None:
                    raise Conflict(f"{agent_id} has no system message. Reset its messages first.")
                messages.rewrite(tx, system, (Text(text),))
            return text

        database = self._world.database
        return await (database.read(write) if dry_run else database.transact(write))

    async def repair(self, agent_id: AgentId) -> list[str]:
        """Repairs the agent's history and returns what was done. Raises NotFound, StorageError."""
        at = self._world.clock.now()

        def write(tx: Tx) -> list[str]:
            row_ownership.agent(tx, self._organization, agent_id)
            waiting = (pending.conversation for pending in approvals.of_agent(tx, agent_id))
            lanes = dict.fromkeys((*contexts.of_agent(tx, agent_id), *waiting))
            return [done for lane in lanes for done in repair_history(tx, agent_id, lane, at)]

        done = await self._world.database.transact(write)
        if done:
            self._live_agents.forget_context((agent_id,))
        return done
