"""A disk that fills up inside a commit group: several agents commit together, the group is lost, and each client gets
the right answer about its own commit.
"""

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

AGENTS = 4


class CommitGroups(ServerScenario):
    """Every agent gets a message at the same moment; a slow disk puts their commits into one group."""

    async def act(self) -> None:
        await self.make_agents(AGENTS)
        clients = self.clients(AGENTS)
        for _ in range(2):
            await together(self._talk(client, agent_id) for client, agent_id in zip(clients, self.agents, strict=True))

    async def _talk(self, client: ScenarioClient, agent_id: str) -> None:
        await client.say(agent_id, "remember {token} and the others")


DISK_FULL = scenario(
    "disk-full-in-a-commit-group",
    CommitGroups,
    faults=(
        Aim(Fault.disk_full, "journal.group", rate=0.15),
        Aim(Fault.disk_full, "journal.open", rate=0.05),
        Aim(Fault.disk_full, "journal.step", rate=0.05),
        Aim(Fault.disk_full, "database.commit", rate=0.08),
        Aim(Fault.disk_full, "database.statement", rate=0.003),
        Aim(Fault.storage_latency, "database.write", rate=0.3),
    ),
    swarm=(Fault.storage_write_fail, Fault.storage_read_fail, Fault.crash_after_write),
)
