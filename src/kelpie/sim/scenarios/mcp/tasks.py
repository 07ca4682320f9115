"""Calls that MCP servers answer with tasks, while the power fails around every commit, writes fail and servers crash.

A task that an agent was told about is followed across restarts, and its agent gets exactly one message with its
result; one that was cancelled before it ended gets none.
"""

import json
from collections import Counter
from typing import TypeGuard

from kelpie.mcp.protocol.versions import V2025_11, V2026_07
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.pending_work import MCP_TASKS, RUNS
from kelpie.sim.scenarios.mcp.server_setup import LIMITS, McpScenario
from kelpie.sim.scenarios.server_scenario import scenario, together

NAMES = ("jobs", "chores")
TURNS = 3
BEFORE, AFTER = Fault.crash_before_write, Fault.crash_after_write
QUIET_S = 700.0  # the time between two questions about a task grows with its failures


class RemoteTasks(McpScenario):
    """Two agents, and two servers that make a task of every call."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.over_http("jobs", V2026_07, kinds=("do", "task"))
        self.over_http("chores", V2025_11, kinds=("do", "task"))
        self.cancelled: set[str] = set()  # tasks for which a cancel was sent

    async def act(self) -> None:
        for name in NAMES:
            await self.register(name)
            if not await self.tool_ids(name):
                await self.refresh(name)
        tools = [f"{name}_{kind}" for name in NAMES for kind in ("do", "task")]
        await self.make_agents(2, types=("letta_v1_agent",), tools=tools)
        talks = (self._talk(client, number) for number, client in enumerate(self.clients(2)))
        await together([*talks, self._cancel(self.client("canceller"))])
        await self.client("last").pause(30.0)

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(TURNS):
            await client.pause(8.0)
            first, second = (NAMES[(number + turn + each) % 2] for each in range(2))
            tasks = f"{self.calling(first, 'task')} & {self.calling(second, 'task')}"
            await client.say(self.agents[number], tasks, self.calling(first), stream=client.tosses(0.5))

    async def _cancel(self, client: ScenarioClient) -> None:
        for _ in range(4):
            await client.pause(12.0)
            told = await client.ask("GET", "/v1/kelpie/mcp-tasks")
            working = [task["id"] for task in told.json() if task["status"] == "working"] if _well(told) else []
            if not working or not client.tosses(0.5):
                continue
            task = client.picks(sorted(working))
            self.cancelled.add(task)
            told = await client.ask("POST", f"/v1/kelpie/mcp-tasks/{task}/cancel", {})
            if told is not None and told.status not in (200, 409, 503):
                raise Broken("a cancel is answered", f"{told.status} {told.body!r}")

    def check(self) -> None:
        super().check()
        told = Counter(
            line
            for (content,) in self.machine.disk.query("SELECT content FROM messages WHERE role = 'user'")
            for line in json.loads(content)[0]["text"].split("\n")
        )
        stored = self.machine.disk.query("SELECT id, server_id, task_id, status, run_id FROM mcp_tasks")
        names = {server_id: name for name, server_id in self.ids.items()}
        runs = Counter(
            json.loads(metadata).get("mcp_task_id")
            for (metadata,) in self.machine.disk.query("SELECT metadata FROM runs WHERE metadata <> 'null'")
        )
        for task_id, server_id, remote_id, status, run_id in stored:
            mark = self.servers[names[server_id]].tasks[remote_id].mark
            results, where = told[f"task done {mark}."], f"{task_id} of {mark} is {status}"
            if status not in ("completed", "cancelled"):
                raise Broken("a task ends as it does on its server", where)
            if status == "completed" and (results != 1 or runs[task_id] != 1 or run_id is None):
                raise Broken("a task has one result", f"{where}: {results} times told, {runs[task_id]} runs")
            if status == "cancelled" and (results or runs[task_id] > 1 or task_id not in self.cancelled):
                raise Broken("a cancelled task has no result", f"{where}: {results} times told, {runs[task_id]} runs")
        self._what_was_told_is_stored(Counter(remote_id for _, _, remote_id, _, _ in stored))

    def _what_was_told_is_stored(self, stored: Counter[str]) -> None:
        """A call that was told to run as a task has one row, and no task has two."""
        if doubled := [remote_id for remote_id, count in stored.items() if count > 1]:
            raise Broken("a task is stored once", f"{doubled}")
        followed = {task.mark for server in self.servers.values() for key, task in server.tasks.items() if stored[key]}
        for each in self.results():
            if each.ok and each.tool.endswith("_task") and each.mark not in followed:
                raise Broken("a task that was told is followed", f"{each}")


def _well(told: Response | None) -> TypeGuard[Response]:
    return told is not None and told.status == 200


TASKS = scenario(
    "mcp-tasks-and-restarts",
    RemoteTasks,
    faults=(Aim(Fault.crash_after_write, "database.acknowledge", rate=0.02, times_max=2),),
    plots=(
        (Aim(BEFORE, "journal.result", nth=2), Aim(AFTER, "journal.result", nth=4)),
        (Aim(BEFORE, "journal.open", nth=4), Aim(AFTER, "journal.step", nth=3)),
        (
            Aim(Fault.storage_write_fail, "database.commit", rate=0.03),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.03),
            Aim(Fault.storage_read_fail, "database.read", rate=0.02),
        ),
        (
            Aim(Fault.mcp_server_crash, "mcp.connect", rate=0.1),
            Aim(Fault.network_packet_loss, "network.mcp", rate=0.03),
            Aim(Fault.network_partition, "network.mcp", rate=0.01, times_max=3),
        ),
    ),
    swarm=(Fault.storage_latency, Fault.storage_busy, Fault.cpu_starvation),
    settings=LIMITS,
    quiet_s=QUIET_S,
    pending=(RUNS, MCP_TASKS),
)
