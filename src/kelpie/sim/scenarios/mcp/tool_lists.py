"""MCP servers change their tools and are deleted while turns use them, while servers crash, packets are lost, and the
disk and the power fail.

What is stored of a server's tools is at every moment one list that it has offered, and never an older one than before;
it follows a change by itself. A deleted server is gone: its tools, its program, and nothing that runs is stuck.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from kelpie.mcp.protocol.versions import V2025_06, V2025_11, V2026_07
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.disk import Disk
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.mcp.server_setup import LIMITS, McpScenario, stored_lists
from kelpie.sim.scenarios.server_scenario import scenario, together

NAMES = ("fresh", "known", "cell")
TURNS = 3
CHANGES = 4
QUIET_S = 120.0  # a list that could not be read is read again, later each time


class ListsGoForward:
    """Checks after every commit that the stored tools of a server are of one list, and of none before the last."""

    def __init__(self, ids: Mapping[str, str]) -> None:
        self._ids = ids
        self._last: dict[str, int] = {}

    def __call__(self, disk: Disk) -> None:
        found: dict[str, set[int]] = {}
        for server_id, remote in disk.query("SELECT server_id, remote FROM mcp_tools"):
            found.setdefault(server_id, set()).add(int(json.loads(remote)["description"].removeprefix("list ")))
        for server_id, lists in found.items():
            if len(lists) > 1:
                raise Broken("the tools of a server are of one list", f"{server_id} has tools of {sorted(lists)}")
            if (now := lists.pop()) < self._last.setdefault(server_id, now):
                raise Broken("a list of tools never goes back", f"{server_id}: {now} after {self._last[server_id]}")
            self._last[server_id] = now


class ToolLists(McpScenario):
    """Two agents use three servers; one client reads lists, and one deletes a server and registers it again."""

    idle_ends = False

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.over_http("fresh", V2026_07)
        self.over_http("known", V2025_11)
        self.as_programs(("cell", V2025_06))
        machine.disk.watch(ListsGoForward(self.ids))

    async def act(self) -> None:
        for name in NAMES:
            await self.register(name)
            if not await self.tool_ids(name):
                await self.refresh(name)
        await self.make_agents(2, types=("letta_v1_agent",), tools=[f"{name}_do" for name in NAMES])
        await together(
            [
                *(self._talk(client, number) for number, client in enumerate(self.clients(2))),
                *(self._change(self.client(f"maker of {name}"), name) for name in NAMES),
                self._read(self.client("reader")),
                self._delete(self.client("deleter"), NAMES[self.machine.loop.seed % len(NAMES)]),
            ]
        )

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(TURNS):
            await client.pause(6.0)
            lines = (self.calling(NAMES[(number + turn) % 3]), "remember {token}", self.calling(client.picks(NAMES)))
            await client.say(self.agents[number], *lines, stream=client.tosses(0.5))

    async def _change(self, client: ScenarioClient, name: str) -> None:
        for _ in range(CHANGES):
            await client.pause(6.0)
            self.servers[name].change()

    async def _read(self, client: ScenarioClient) -> None:
        """Several at once read the list of one server."""
        for _ in range(4):
            await client.pause(6.0)
            path = f"/v1/mcp-servers/{self.ids[client.picks(NAMES)]}/refresh"
            await together(self._read_once(client, path) for _ in range(2))

    async def _read_once(self, client: ScenarioClient, path: str) -> None:
        await client.pause(0.2)
        told = await client.ask("PATCH", path, {})
        if told is not None and told.status not in (200, 404, 408, 409, 502, 503):
            raise Broken("a refresh is answered", f"{path}: {told.status} {told.body!r}")

    async def _delete(self, client: ScenarioClient, name: str) -> None:
        await client.pause(12.0)
        before = self.ids[name]
        path = f"/v1/mcp-servers/{before}"
        kind = self.configs[name]["mcp_server_type"]
        where = {"command": None, "args": None} if kind == "stdio" else {"server_url": None}
        change = {"mcp_server_type": kind, **where, "kelpie_options": {"connect_seconds": 5.0}}
        await client.ask("PATCH", path, {"config": change})  # so that the next use connects anew
        await together((self._read_once(client, f"{path}/refresh"), self._delete_once(client, name, path)))
        self.deleted.add(before)
        await client.pause(4.0)
        await self.register(name)

    async def _delete_once(self, client: ScenarioClient, name: str, path: str) -> None:
        await client.pause(0.6)
        for _ in range(50):
            told = await client.ask("DELETE", path)
            if told is not None and told.status in (204, 400):  # 400: it was gone already
                break
            if told is not None and told.status not in (409, 503):
                raise Broken("a server can be deleted", f"{name}: {told.status} {told.body!r}")
            await client.pause()

    # --- what must be so -------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        self._lists_have_followed()
        await super().settle()

    def _lists_have_followed(self) -> None:
        """A server that is connected has said that its tools changed: they were read again by then."""
        stored, pool = stored_lists(self.machine, self.ids), self.connections()
        for name, server_id in self.ids.items():
            connection = pool.get(server_id)
            if connection is None or not connection.connected or name not in stored:
                continue  # whoever registers a server that cannot be read reads its tools later
            if stored[name] != self.servers[name].offered[-1]:
                told = f"{name} has {stored[name]}, offered is {self.servers[name].offered[-1]}"
                raise Broken("a change of tools is followed", told)

    def check(self) -> None:
        super().check()
        for server_id in self.deleted:
            left = self.machine.disk.query("SELECT tool_id FROM mcp_tools WHERE server_id = ?", server_id)
            tools = self.machine.disk.query(
                "SELECT id FROM tools WHERE json_extract(metadata, '$.mcp.server_id') = ?", server_id
            )
            if left or tools:
                raise Broken("a deleted server is gone", f"{server_id}: {left} {tools}")


LISTS = scenario(
    "mcp-tools-that-change",
    ToolLists,
    plots=(
        (
            Aim(Fault.mcp_server_crash, "mcp.connect", rate=0.05),
            Aim(Fault.mcp_server_crash, "mcp.call", rate=0.1),
            Aim(Fault.mcp_server_slow_start, "mcp.connect", rate=0.3),
        ),
        (
            Aim(Fault.network_packet_loss, "network.mcp", rate=0.02),
            Aim(Fault.network_delay, "network.mcp", rate=0.2),
        ),
        (
            Aim(Fault.storage_write_fail, "database.commit", rate=0.03),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.03),
            Aim(Fault.storage_latency, "database.write", rate=0.2),
        ),
        (
            Aim(Fault.crash_before_write, "journal.result", nth=2),
            Aim(Fault.process_resource_exhaustion, "cells.start", rate=0.2),
        ),
    ),
    swarm=(Fault.storage_busy, Fault.cpu_starvation, Fault.crash_after_write),
    settings=replace(LIMITS, mcp_idle_s=600.0),
    quiet_s=QUIET_S,
)
