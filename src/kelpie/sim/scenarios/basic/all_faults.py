"""All faults at once: small bounds, external tools and streams; each kind of fault is off in about half of the runs."""

from dataclasses import replace

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.scenarios.basic.storage_faults import LINES
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.fixtures.server_scenario import ServerScenario, scenario, together

SCRIPTS = (
    *LINES,
    ('call outside {"mark": "{token}"}', "remember {token} was outside"),
    ('call outside {"mark": "{token}-a"} & call outside {"mark": "{token}-b"}',),
)
AGENTS = 3


class AllFaults(ServerScenario):
    async def act(self) -> None:
        await self.register_outside()
        await self.make_agents(AGENTS, types=self.all_types, tools=["outside"])
        await together(self._talk(client, number) for number, client in enumerate(self.clients(4)))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(2):
            await client.pause()
            lines = SCRIPTS[(number + 3 * turn) % len(SCRIPTS)]
            agent_id = self.agents[(number + turn) % AGENTS]
            await client.say(agent_id, *lines, stream=client.tosses(0.5), tokens=client.tosses(0.5))


EVERYTHING = scenario(
    "everything-at-once",
    AllFaults,
    faults=(
        Aim(Fault.storage_latency, "database.write", rate=0.05),
        Aim(Fault.network_delay, "network.client", rate=0.02),
        Aim(Fault.llm_rate_limit, "llm.with_retry_after", rate=0.05),
    ),
    swarm=tuple(Fault),
    settings=replace(SETTINGS, hot_agents_max=2, idle_s=2.0, mailbox_size=2, model_timeout_s=30.0),
)
