"""Two organizations use programs of MCP servers, of which one keeps all of its own busy, while programs crash and hang,
cells cannot be started, and the power fails.

The programs together stay within their limit, and those of one organization never keep the other from its own.
"""

from dataclasses import replace

from kelpie.mcp.protocol.versions import V2025_06, V2025_11, V2026_07
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.mcp.server_setup import LIMITS, TRIES_MAX, McpScenario
from kelpie.sim.scenarios.server_scenario import scenario, together

BUSY = ("first", "second", "third", "fourth")
GUEST = "guest"
PROGRAMS_MAX = 4
FLOODERS = 8
CALLS = 6
_REFUSED = (b"which is the limit", b"others may use the places")


class SharedPrograms(McpScenario):
    """As many programs of one organization as may run in all, and one of another organization."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        versions = (V2025_06, V2025_11, V2026_07, V2025_11)
        self.as_programs(*zip(BUSY, versions, strict=True), (GUEST, V2026_07), most=PROGRAMS_MAX)
        self.over = False

    async def act(self) -> None:
        await together(self._ready(name) for name in BUSY)
        guest = await self._moves_in(self.client("owner"))
        await together((self._calls(guest), *(self._floods(client) for client in self.clients(FLOODERS))))

    async def _ready(self, name: str) -> None:
        await self.register(name)
        if not await self.tool_ids(name):
            await self.refresh(name)

    async def _moves_in(self, owner: ScenarioClient) -> ScenarioClient:
        organization = (await owner.insist("POST", "/v1/admin/orgs/", {"name": "neighbour"}))["id"]
        body = {"name": "guest", "organization_id": organization}
        user_id = (await owner.insist("POST", "/v1/admin/users/", body))["id"]
        client = self.machine.client("neighbour", {"user_id": user_id})
        return ScenarioClient(self.machine, "neighbour", self.heard, client)

    async def _floods(self, client: ScenarioClient) -> None:
        """Keeps a program busy, or tries to, until the other organization has done everything."""
        tools = {name: (await self.tool_ids(name))[f"{name}_do"] for name in BUSY}
        while not self.over:
            name = client.picks(BUSY)
            if await self.run_tool(client, name, tools[name]) is None:
                await client.pause()

    async def _calls(self, client: ScenarioClient) -> None:
        """Registers its server and calls it, which the programs of the other organization never prevent."""
        try:
            path, done = f"/v1/mcp-servers/{await self._registered(client)}", 0
            for _ in range(TRIES_MAX):
                told = await client.ask("PATCH", f"{path}/refresh", {})
                self._has_room(told)
                tools = {tool["name"]: tool["id"] for tool in await client.insist("GET", f"{path}/tools")}
                if (tool_id := tools.get(f"{GUEST}_do")) is not None:
                    mark = self.mark()
                    told = await client.ask("POST", f"{path}/tools/{tool_id}/run", {"args": {"mark": mark}})
                    self._has_room(told)
                    done += told is not None and told.status == 200 and f"done {mark}" in told.body.decode()
                if done == CALLS:
                    return
                await client.pause(2.0)
            raise Broken("a server that works is used", f"the guest had {done} of {CALLS} calls")
        finally:
            self.over = True

    async def _registered(self, client: ScenarioClient) -> str:
        body = {"server_name": GUEST, "config": self.configs[GUEST]}
        for _ in range(TRIES_MAX):
            self._has_room(await client.ask("POST", "/v1/mcp-servers/", body))
            if found := await client.insist("GET", "/v1/mcp-servers/"):
                return found[0]["id"]
            await client.pause()
        raise Broken("a server can be registered", GUEST)

    def _has_room(self, told: object) -> None:
        body = getattr(told, "body", b"")
        if any(words in body for words in _REFUSED):
            raise Broken("one organization leaves room for another", f"{body!r}")


PROGRAMS = scenario(
    "mcp-programs-of-two-organizations",
    SharedPrograms,
    plots=(
        (Aim(Fault.mcp_tool_timeout, "mcp.call", rate=0.3),),
        (
            Aim(Fault.mcp_server_crash, "mcp.call", rate=0.1),
            Aim(Fault.mcp_server_slow_start, "mcp.connect", rate=0.3),
        ),
        (
            Aim(Fault.process_resource_exhaustion, "cells.start", rate=0.2),
            Aim(Fault.mcp_tool_timeout, "mcp.call", rate=0.2),
        ),
        (
            Aim(Fault.crash_after_write, "database.acknowledge", nth=30),
            Aim(Fault.mcp_tool_timeout, "mcp.call", rate=0.2),
            Aim(Fault.cpu_starvation, "cpu", rate=0.1),
        ),
    ),
    settings=replace(LIMITS, mcp_processes_max=PROGRAMS_MAX),
    swarm=(Fault.storage_busy,),
)
