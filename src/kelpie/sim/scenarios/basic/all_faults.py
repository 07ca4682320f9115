"""All faults at once: small bounds, tools in cells, searches and streams; each kind of fault is off in about half of
the runs, and those that are on fire everywhere.
"""

from dataclasses import replace

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.basic.storage_faults import LINES
from kelpie.sim.scenarios.fixtures.bit_flips import INDEX_CELLS, BitFlips
from kelpie.sim.scenarios.fixtures.cell_setup import boot_with_cells, code
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.fixtures.server_scenario import ServerScenario, scenario, together

SCRIPTS = (
    *LINES,
    ('call outside {"mark": "{token}"}', "remember {token} was outside"),
    ('call outside {"mark": "{token}-a"} & call outside {"mark": "{token}-b"}',),
    ('call archival_memory_insert {"content": "{token} likes kelp"}', 'call archival_memory_search {"query": "kelp"}'),
    ('call conversation_search {"query": "tea"}',),
)
TOOLS = ("outside", "archival_memory_insert", "archival_memory_search", "conversation_search")
AGENTS = 3
TURNS = 2


class AllFaults(ServerScenario):
    """Four clients. Of what is stored only the search index decays: anything else would be missed by the checks."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        machine.world.code = code

    async def act(self) -> None:
        await self.register_outside()
        await self.make_agents(AGENTS, types=self.all_types, tools=TOOLS)
        flips = BitFlips(self.machine)
        for turn in range(TURNS):
            await together(self._talk(client, number, turn) for number, client in enumerate(self.clients(4)))
            flips.flip(INDEX_CELLS)
        await self.client("last").say(self.agents[0], *SCRIPTS[-2])
        flips.put_back()

    async def _talk(self, client: ScenarioClient, number: int, turn: int) -> None:
        await client.pause()
        lines = SCRIPTS[(number + 3 * turn + self.machine.loop.seed) % len(SCRIPTS)]
        agent_id = self.agents[(number + turn) % AGENTS]
        await client.say(agent_id, *lines, stream=client.tosses(0.5), tokens=client.tosses(0.5))


EVERYTHING = replace(
    scenario(
        "everything-at-once",
        AllFaults,
        faults=(
            Aim(Fault.storage_latency, "database.write", rate=0.05),
            Aim(Fault.network_delay, "network.client", rate=0.02),
            Aim(Fault.llm_rate_limit, "llm.with_retry_after", rate=0.05),
        ),
        swarm=tuple(Fault),
        settings=replace(SETTINGS, hot_agents_max=2, idle_s=2.0, mailbox_size=2, model_timeout_s=30.0),
    ),
    boot=boot_with_cells,
    swarm_everywhere=True,
)
