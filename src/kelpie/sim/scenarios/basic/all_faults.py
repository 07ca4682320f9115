"""All faults at once: small bounds, tools in cells, searches and streams; each kind of fault is off in about half of
the runs, and those that are on fire everywhere.
"""

from dataclasses import replace

from kelpie.mcp.protocol.versions import V2025_11, V2026_07
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.basic.storage_faults import LINES
from kelpie.sim.scenarios.cell_setup import boot_with_cells, code
from kelpie.sim.scenarios.fixtures.bit_flips import INDEX_CELLS, BitFlips
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.mcp.http_host import HttpHost
from kelpie.sim.scenarios.mcp.remote_server import RemoteServer
from kelpie.sim.scenarios.mcp.server_setup import LIMITS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

SCRIPTS = (
    *LINES,
    ('call outside {"mark": "{token}"}', "remember {token} was outside"),
    ('call outside {"mark": "{token}-a"} & call outside {"mark": "{token}-b"}',),
    ('call archival_memory_insert {"content": "{token} likes kelp"}', 'call archival_memory_search {"query": "kelp"}'),
    ('call conversation_search {"query": "tea"}',),
    ('call remote_do {"mark": "{token}-far"} & call remote_do {"mark": "{token}-farther"}', "remember {token} was far"),
)
TOOLS = ("outside", "archival_memory_insert", "archival_memory_search", "conversation_search")
AGENTS = 3
TURNS = 2
TRIES = 5


class AllFaults(ServerScenario):
    """Four clients. Of what is stored only the search index decays: anything else would be missed by the checks."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        machine.world.code = code
        versions = V2026_07, V2025_11
        self.remote = HttpHost(machine, RemoteServer(machine, "remote", versions[machine.loop.seed % 2]))

    async def act(self) -> None:
        await self.register_outside()
        tools = (*TOOLS, "remote_do") if await self._register_remote() else TOOLS
        await self.make_agents(AGENTS, types=self.all_types, tools=tools)
        flips = BitFlips(self.machine)
        for turn in range(TURNS):
            await together(self._talk(client, number, turn) for number, client in enumerate(self.clients(4)))
            flips.flip(INDEX_CELLS)
        await self.client("last").say(self.agents[0], *SCRIPTS[-3])
        flips.put_back()

    async def _register_remote(self) -> bool:
        """Registers an MCP server; False if its tools cannot be read."""
        maker = self.client("maker")
        config = {"mcp_server_type": "streamable_http", "server_url": self.remote.url}
        body = {"server_name": "remote", "config": {**config, "auth_token": self.remote.server.token}}
        await maker.ask("POST", "/v1/mcp-servers/", body)
        for _ in range(TRIES):
            for server in await maker.insist("GET", "/v1/mcp-servers/"):
                told = await maker.ask("PATCH", f"/v1/mcp-servers/{server['id']}/refresh", {})
                if told is not None and told.status == 200:
                    return True
            await maker.ask("POST", "/v1/mcp-servers/", body)
        return False

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
        settings=replace(LIMITS, hot_agents_max=2, idle_s=2.0, mailbox_size=2, model_timeout_s=30.0),
    ),
    boot=boot_with_cells,
    swarm_everywhere=True,
)
