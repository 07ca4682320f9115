"""Deployments API: list and delete everything that was created for a deployment."""

from collections.abc import Awaitable, Callable, Sequence

from kelpie.agent.resources.agents import Agents
from kelpie.agent.resources.groups import Groups
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.deployments import KINDS, DeployedItem
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, BlockId, GroupId
from kelpie.memory.blocks import Blocks
from kelpie.storage.views import deployments as rows
from kelpie.world.world import World


class Deployments:
    """Deployments of the caller's organization."""

    def __init__(
        self, world: World, agents: Agents, blocks: Blocks, groups: Groups, caller: Caller = DEFAULT_CALLER
    ) -> None:
        self._world = world
        self._organization = caller.organization_id
        self._removers: dict[str, Callable[[str], Awaitable[None]]] = {
            "group": lambda row_id: groups.delete(GroupId(row_id)),
            "agent": lambda row_id: agents.delete(AgentId(row_id)),
            "block": lambda row_id: blocks.delete(BlockId(row_id)),
        }

    async def delete(self, deployment_id: str) -> list[DeployedItem]:
        """Removes the items one by one and returns them; when it fails halfway, a second call removes the rest."""
        gone: list[DeployedItem] = []
        for kind, remove in self._removers.items():
            for one in await self.entities(deployment_id, (kind,)):
                try:
                    await remove(one.id)
                except NotFound:
                    continue  # deleted by another request meanwhile
                gone.append(one)
        return gone

    async def entities(self, deployment_id: str, kinds: Sequence[str] = KINDS) -> list[DeployedItem]:
        """Items of the deployment, kind by kind, the oldest first."""
        return await self._world.database.read(lambda tx: rows.select(tx, self._organization, deployment_id, kinds))
