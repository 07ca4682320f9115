"""Conversations while the disk misbehaves: writes and reads that fail, before the database and inside the journal's
commits.
"""

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

MESSAGES = 2
LINES = ((), ("remember {token} likes tea",), ("remember {token} first", "remember {token} second"))


class StorageFaults(ServerScenario):
    """Three clients talk to three agents, one after the other, streaming now and then."""

    async def act(self) -> None:
        await self.make_agents(3)
        await together(self._talk(client, number) for number, client in enumerate(self.clients(3)))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(MESSAGES):
            await client.pause()
            agent_id = self.agents[(number + turn) % len(self.agents)]
            lines = LINES[(number + turn) % len(LINES)]
            await client.say(agent_id, *lines, stream=client.tosses(0.4), tokens=client.tosses(0.5))


CONVERSATIONS = scenario(
    "conversations-under-storage-faults",
    StorageFaults,
    faults=(
        Aim(Fault.storage_write_fail, "database.begin", rate=0.04),
        Aim(Fault.storage_write_fail, "database.statement", rate=0.004),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.04),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.04),
        Aim(Fault.storage_write_fail, "journal.open", rate=0.08),
        Aim(Fault.storage_write_fail, "journal.step", rate=0.08),
        Aim(Fault.storage_write_fail, "journal.step.told", rate=0.08),
        Aim(Fault.storage_busy, "database.begin", rate=0.05),
        Aim(Fault.storage_busy, "database.commit", rate=0.05),
        Aim(Fault.storage_read_fail, "database.read", rate=0.08),
        Aim(Fault.storage_read_fail, "journal.lookup", rate=0.5),
        Aim(Fault.storage_latency, "database.write", rate=0.05),
        Aim(Fault.storage_latency, "database.read", rate=0.05),
    ),
    swarm=(Fault.disk_full, Fault.network_delay, Fault.cpu_starvation, Fault.llm_rate_limit),
)
