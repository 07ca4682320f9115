"""Agents use MCP servers over every transport and of both generations, while the servers crash, start slowly, hang,
fail and are cut off, cells cannot be started, and the power fails.

Each call ends within its limit with a true result, no call of a session is made twice, built-in tools go on working,
and every server that works again is used again.
"""

from kelpie.mcp.protocol.versions import V2024_11, V2025_06, V2025_11, V2026_07
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.mcp.server_setup import LIMITS, McpScenario
from kelpie.sim.scenarios.server_scenario import scenario, together

NAMES = ("fresh", "known", "stream", "cell", "attic")
AGENTS = 3
TURNS = 2


class BrokenServers(McpScenario):
    """Five servers: over HTTP of either generation, over the older stream, and two programs where one may run."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.over_http("fresh", V2026_07)
        self.over_http("known", V2025_11)
        self.over_http("stream", V2024_11, legacy=True)
        self.as_programs(("cell", V2025_06), ("attic", V2026_07))

    async def act(self) -> None:
        await together(self._ready(name) for name in NAMES)
        await self.make_agents(AGENTS, types=("letta_v1_agent",), tools=[f"{name}_do" for name in NAMES])
        await together(
            [
                *(self._talk(client, number) for number, client in enumerate(self.clients(AGENTS))),
                self._try(self.client("trier")),
            ]
        )

    async def _ready(self, name: str) -> None:
        await self.register(name)
        if not await self.tool_ids(name):
            await self.refresh(name)

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(TURNS):
            await client.pause(4.0)
            first, second = (NAMES[(number + turn + each) % len(NAMES)] for each in range(2))
            same = f"{self.calling(first)} & {self.calling(first)}"
            lines = (same, self.calling(second), "remember {token} was here", self.calling(client.picks(NAMES)))
            await client.say(self.agents[number], *lines, stream=client.tosses(0.5))

    async def _try(self, client: ScenarioClient) -> None:
        """Several calls of one server at once, for no agent."""
        name = client.picks(NAMES)
        tools = await self.tool_ids(name)
        await client.pause(6.0)
        await together(self.run_tool(client, name, tools[f"{name}_do"]) for _ in range(3))


_NETWORK = (
    Aim(Fault.network_packet_loss, "network.mcp", rate=0.04),
    Aim(Fault.network_partition, "network.mcp", rate=0.02, times_max=4),
    Aim(Fault.network_delay, "network.mcp", rate=0.05),
    Aim(Fault.network_message_reorder, "network.mcp", rate=0.05),
)
BROKEN = scenario(
    "mcp-servers-that-break",
    BrokenServers,
    plots=(
        (
            Aim(Fault.mcp_server_crash, "mcp.connect", rate=0.15),
            Aim(Fault.mcp_server_crash, "mcp.call", rate=0.1),
            Aim(Fault.mcp_server_crash, "mcp.answer", rate=0.1),
        ),
        (
            Aim(Fault.mcp_server_slow_start, "mcp.connect", rate=0.3),
            Aim(Fault.mcp_tool_timeout, "mcp.call", rate=0.1),
            Aim(Fault.mcp_tool_timeout, "mcp.stream", rate=0.15),
        ),
        (
            Aim(Fault.mcp_tool_fail, "mcp.call", rate=0.15),
            Aim(Fault.mcp_tool_fail, "mcp.status", rate=0.2),
            Aim(Fault.mcp_tool_fail, "mcp.garbage", rate=0.2),
        ),
        _NETWORK,
        (
            Aim(Fault.process_resource_exhaustion, "cells.start", rate=0.3),
            Aim(Fault.process_crash, "cells.before", rate=0.2),
            Aim(Fault.cpu_starvation, "cpu", rate=0.2),
        ),
        (
            *_NETWORK,
            Aim(Fault.mcp_server_crash, "mcp.answer", rate=0.1),
            Aim(Fault.crash_before_write, "journal.result", nth=3),
            Aim(Fault.storage_latency, "database.write", rate=0.05),
        ),
    ),
    settings=LIMITS,
    swarm=(Fault.storage_busy, Fault.llm_rate_limit),
)
