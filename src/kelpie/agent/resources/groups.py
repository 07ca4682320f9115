"""Groups API: members, manager and shared blocks of groups, and messages to all members."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kelpie.agent.inbox.send import MessageSender
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.multi_agent.group_chat import Listener
from kelpie.agent.multi_agent.running_chats import RunningChats
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.groups import Group, GroupQuery, Manager, ManagerType, NewGroup
from kelpie.core.conversations.messages import Message, MessageQuery
from kelpie.core.errors import Conflict, InvalidInput
from kelpie.core.ids import AgentId, BlockId, GroupId
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.agents import groups as rows
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.conversations import message_search
from kelpie.world.database import Tx
from kelpie.world.world import World

MEMBERS_MAX = 1000
BLOCKS_MAX = 100


class Groups:
    """Groups of the caller's organization."""

    def __init__(
        self,
        world: World,
        live_agents: LiveAgents,
        sending: MessageSender,
        running_chats: RunningChats,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._sending = sending
        self._running_chats = running_chats
        self._live_agents = live_agents
        self._user = caller.user_id
        self._organization = caller.organization_id

    async def create(self, new: NewGroup) -> Group:
        """Raises NotFound (agent, block), Conflict (a member has another block of a shared label), InvalidInput."""
        _check(new.agent_ids, new.shared_block_ids)
        group_id, now = self._world.ids.new(GroupId), self._world.clock.now()

        def write(tx: Tx) -> Group:
            self._check_agents(tx, new.agent_ids, new.manager)
            self._hang(tx, new.agent_ids, new.shared_block_ids)
            group = Group(
                id=group_id,
                description=new.description,
                manager=new.manager,
                agent_ids=tuple(dict.fromkeys(new.agent_ids)),
                created_at=now,
                updated_at=now,
                shared_block_ids=tuple(dict.fromkeys(new.shared_block_ids)),
                turns_counter=-1 if new.manager.type is ManagerType.sleeptime else None,
                project_id=new.project_id,
                hidden=new.hidden,
                template_id=new.template_id,
                base_template_id=new.base_template_id,
                deployment_id=new.deployment_id,
                created_by_id=self._user,
                last_updated_by_id=self._user,
            )
            rows.add(tx, group, self._organization)
            return group

        made = await self._world.database.transact(write)
        if made.shared_block_ids:
            self._live_agents.reload(made.agent_ids)
        return made

    async def get(self, group_id: GroupId) -> Group:
        """Raises NotFound."""
        return await self._world.database.read(lambda tx: rows.get(tx, self._organization, group_id))

    async def count(self) -> int:
        return await self._world.database.read(lambda tx: rows.count(tx, self._organization))

    async def update(self, group_id: GroupId, changes: Mapping[str, Any]) -> Group:
        """Changes what is given: `agent_ids`, `shared_block_ids`, `manager` (fields by name), and columns by name.

        Raises NotFound, Conflict, InvalidInput.
        """
        columns = {name: changes[name] for name in ("description", "project_id") if name in changes}
        now = self._world.clock.now()

        def write(tx: Tx) -> tuple[Group, Group]:
            group = rows.get(tx, self._organization, group_id)
            manager = replace(group.manager, **changes.get("manager", {}))
            members: Sequence[AgentId] = changes.get("agent_ids", group.agent_ids)
            shared: Sequence[BlockId] = changes.get("shared_block_ids", group.shared_block_ids)
            _check(members, shared)
            self._check_agents(tx, members, manager)
            gone = [block_id for block_id in group.shared_block_ids if block_id not in shared]
            _take_off(tx, group.agent_ids, gone)
            self._hang(tx, members, shared)
            rows.set_agents(tx, group_id, members)
            rows.set_blocks(tx, group_id, shared)
            stamp = {"updated_at": now, "last_updated_by_id": self._user}
            rows.change(tx, group_id, {**columns, **rows.manager_columns(manager), **stamp})
            return group, rows.get(tx, self._organization, group_id)

        before, changed = await self._world.database.transact(write)
        self._live_agents.reload(tuple(dict.fromkeys((*before.agent_ids, *changed.agent_ids))))
        return changed

    async def delete(self, group_id: GroupId) -> None:
        """Deletes the group; its agents and blocks stay as they are. Raises NotFound."""

        def write(tx: Tx) -> None:
            rows.get(tx, self._organization, group_id)
            rows.remove(tx, group_id)

        await self._world.database.transact(write)

    async def attach_block(self, group_id: GroupId, block_id: BlockId) -> None:
        """Shares a block among the group's agents. Raises NotFound, Conflict."""

        def write(tx: Tx) -> Group:
            group = rows.get(tx, self._organization, group_id)
            self._hang(tx, group.agent_ids, (block_id,))
            rows.set_blocks(tx, group_id, [*group.shared_block_ids, block_id])
            return group

        self._live_agents.reload((await self._world.database.transact(write)).agent_ids)

    async def detach_block(self, group_id: GroupId, block_id: BlockId) -> None:
        """Takes a block from the group and its agents; one that was not shared stays untouched. Raises NotFound."""

        def write(tx: Tx) -> Group:
            group = rows.get(tx, self._organization, group_id)
            row_ownership.block(tx, self._organization, block_id)
            if block_id in group.shared_block_ids:
                _take_off(tx, group.agent_ids, (block_id,))
                rows.set_blocks(tx, group_id, [kept for kept in group.shared_block_ids if kept != block_id])
            return group

        self._live_agents.reload((await self._world.database.transact(write)).agent_ids)

    async def messages(self, group_id: GroupId, query: MessageQuery) -> list[Message]:
        """Messages of the group, oldest first. Raises NotFound for an unknown group or cursor."""

        def read(tx: Tx) -> list[Message]:
            rows.get(tx, self._organization, group_id)
            return message_search.select_all(tx, self._organization, query, group_id)

        return await self._world.database.read(read)

    async def reset_messages(self, group_id: GroupId) -> None:
        """Deletes the messages of the group, and nothing else of its agents' histories. Raises NotFound."""

        def write(tx: Tx) -> list[AgentId]:
            rows.get(tx, self._organization, group_id)
            return message_search.remove_group(tx, self._organization, group_id)

        self._live_agents.forget_context(await self._world.database.transact(write))

    async def send(self, group_id: GroupId, send: SendRequest) -> Listener:
        """Sends messages to the group; its agents answer even when the client disconnects.

        Raises NotFound, and Conflict when the group is empty, lacks an agent to lead it or has a running chat.
        """

        def read(tx: Tx) -> tuple[Group, list[Agent]]:
            group = rows.get(tx, self._organization, group_id)
            leader = (group.manager.agent_id,) if group.manager.agent_id else ()
            return group, agent_rows.get_many(tx, self._organization, [*group.agent_ids, *leader])

        group, found = await self._world.database.read(read)
        known = {agent.id: agent for agent in found}
        members = [known[agent_id] for agent_id in group.agent_ids if agent_id in known]
        if not members:
            raise Conflict(f"{group_id} has no agents. Add agents to the group before sending messages to it.")
        leader = known.get(group.manager.agent_id) if group.manager.agent_id else None
        return self._running_chats.begin(self._sending, group, members, leader, send)

    def _check_agents(self, tx: Tx, agent_ids: Sequence[AgentId], manager: Manager) -> None:
        for agent_id in (*agent_ids, *([manager.agent_id] if manager.agent_id else ())):
            row_ownership.agent(tx, self._organization, agent_id)

    def _hang(self, tx: Tx, agent_ids: Sequence[AgentId], block_ids: Sequence[BlockId]) -> None:
        for block_id in block_ids:
            row_ownership.block(tx, self._organization, block_id)
            for agent_id in agent_ids:
                block_attachments.attach(tx, agent_id, block_id)

    async def page(self, query: GroupQuery) -> list[Group]:
        """Raises NotFound when the groups of an unknown agent are asked for."""

        def read(tx: Tx) -> list[Group]:
            if query.agent_id is not None:
                row_ownership.agent(tx, self._organization, query.agent_id)
            return rows.select_groups(tx, self._organization, query)

        return await self._world.database.read(read)


def _check(agent_ids: Sequence[AgentId], block_ids: Sequence[BlockId]) -> None:
    if len(agent_ids) > MEMBERS_MAX:
        raise InvalidInput("agent_ids", f"a group can have at most {MEMBERS_MAX} agents")
    if len(block_ids) > BLOCKS_MAX:
        raise InvalidInput("shared_block_ids", f"a group can share at most {BLOCKS_MAX} blocks")


def _take_off(tx: Tx, agent_ids: Sequence[AgentId], block_ids: Sequence[BlockId]) -> None:
    """Takes blocks off those agents that carry them."""
    for block_id in block_ids:
        carriers = block_attachments.agents_with(tx, block_id)
        for agent_id in agent_ids:
            if agent_id in carriers:
                block_attachments.detach(tx, agent_id, block_id)
