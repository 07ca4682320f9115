"""OAuth tokens of MCP servers end again and again while agents use them, calls run out of time, writes fail, packets
are lost and the power fails.

A refresh token is used once, and the one that replaces it is kept, unless the answer was lost on its way or the power
failed: then a person logs in again. No token is in an event, a message or an answer.
"""

import asyncio
from typing import Any

from kelpie.mcp.protocol.versions import V2025_11, V2026_07
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.mcp.authorization_server import ISSUER, AuthorizationServer
from kelpie.sim.scenarios.mcp.server_setup import LIMITS, McpScenario
from kelpie.sim.scenarios.server_scenario import scenario, together

NAMES = ("guarded", "locked")
TURNS = 4
TRIES_MAX = 200
SHORT_S = 2.5  # that a call may take: less than a new token may
LOST = (  # faults after which nobody can know whether a refresh token was used
    Fault.network_packet_loss,
    Fault.network_partition,
    Fault.network_delay,
    Fault.cpu_starvation,
    Fault.crash_after_write,
    Fault.crash_before_write,
)


class Tokens(McpScenario):
    """Two agents and two servers, one of each generation, behind one authorization server."""

    idle_ends = False  # whether somebody is still logged in is looked at first

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.authorization = AuthorizationServer(machine)
        for name, version in zip(NAMES, (V2026_07, V2025_11), strict=True):
            host = self.over_http(name, version)
            host.guard = self.authorization.challenge
            host.documents["/.well-known/oauth-protected-resource/mcp"] = {
                "resource": host.url,
                "authorization_servers": [ISSUER],
            }
            del self.configs[name]["auth_token"]
            self.configs[name]["kelpie_options"] = {"call_seconds": SHORT_S}

    async def act(self) -> None:
        for name in NAMES:
            await self.register(name)
            await self._log_in(self.client("person"), name)
        await self.make_agents(2, types=("letta_v1_agent",), tools=[f"{name}_do" for name in NAMES])
        await together(self._talk(client, number) for number, client in enumerate(self.clients(2)))

    async def _log_in(self, client: ScenarioClient, name: str) -> None:
        """A person logs in, and the tools of the server are read."""
        for _ in range(TRIES_MAX):
            if await self._connect(client, name) and await self._reads(client, name):
                return
            await client.pause(3.0)
        raise Broken("a person can log in", name)

    async def _connect(self, client: ScenarioClient, name: str) -> bool:
        await self.machine.up()
        try:
            async with asyncio.timeout(60.0):
                async with client.connection.stream("GET", f"/v1/mcp-servers/connect/{self.ids[name]}") as stream:
                    async for event in stream.events():
                        told: dict[str, Any] = event.json()
                        if told["event"] == "authorization_url":
                            query = self.authorization.agree(told["url"])
                            await client.ask("GET", f"/v1/tools/mcp/oauth/callback?{query}")
                        elif told["event"] in ("success", "error"):
                            return told["event"] == "success"
        except (ConnectionLost, TimeoutError):
            pass
        return False

    async def _reads(self, client: ScenarioClient, name: str) -> bool:
        told = await client.ask("PATCH", f"/v1/mcp-servers/{self.ids[name]}/refresh", {})
        return told is not None and told.status == 200

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(TURNS):
            await client.pause(80.0)
            first, second = (NAMES[(number + turn + each) % 2] for each in range(2))
            both = f"{self.calling(first)} & {self.calling(second)}"
            await client.say(self.agents[number], both, "remember {token}", stream=client.tosses(0.5))

    # --- what must be so -------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Whoever was logged in still is, unless a token was lost where nobody can help it."""
        person = self.client("person")
        for name in NAMES:
            if self._may_be_lost():
                await self._log_in(person, name)
            else:
                await self._is_logged_in(person, name)
        await super().settle()

    async def _is_logged_in(self, client: ScenarioClient, name: str) -> None:
        for _ in range(20):  # a call may be shorter than the wait for a new token, until the server is left alone
            if await self._reads(client, name):
                return
            await client.pause(4.0)
        raise Broken("a refresh token is not lost", f"{name} wants another login")

    def _may_be_lost(self) -> bool:
        return any(firing.fault in LOST for firing in self.machine.faults.firings)

    def check(self) -> None:
        super().check()
        if self._may_be_lost():
            return
        if used := [token for token, each in self.authorization.issued.items() if each.uses > 1]:
            raise Broken("a refresh token is used once", f"{used}")

    def secret_texts(self) -> dict[str, str]:
        return dict.fromkeys(self.authorization.secrets, "a token")


TOKENS = scenario(
    "mcp-tokens-that-end",
    Tokens,
    plots=(
        (),
        (
            Aim(Fault.storage_write_fail, "database.commit", rate=0.06),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.06),
            Aim(Fault.storage_read_fail, "database.read", rate=0.03),
        ),
        (
            Aim(Fault.network_packet_loss, "network.mcp", rate=0.03),
            Aim(Fault.network_delay, "network.mcp", rate=0.1),
        ),
        (
            Aim(Fault.crash_after_write, "database.acknowledge", rate=0.02, times_max=2),
            Aim(Fault.mcp_server_crash, "mcp.call", rate=0.1),
        ),
    ),
    swarm=(Fault.storage_latency, Fault.storage_busy),
    settings=LIMITS,
    quiet_s=90.0,
)
