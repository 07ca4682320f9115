"""An agent whose permissions and limits change while it calls tools in several conversations, and the power fails.

A forbidden tool is not run any more once its ban is acknowledged, not even in a running turn; every call that has a
result is recorded exactly once, with its outcome; and the recorded use goes beyond the limits of an hour by no more
than one call in flight for each conversation.
"""

import asyncio
import json
from collections import Counter
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.ports.cells import CPU_US
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.external_service import BEGUN, HOST
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

LANES = 3
ROUNDS = 4
BANS = 3
FIRST_CALLS = 6
RAISE_CALLS = 4
HOUR_US = 3_600_000_000

BAN = {"deny": ["outside"]}
BY_KIND = {"allow": ["kind:builtin"]}
FREE = {"allow": ["*"], "deny": []}


class ChangingPermissions(ServerScenario):
    """Three clients make the agent call; an operator forbids and permits, and raises the limits."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.begun: list[tuple[float, str]] = []  # when the server began to run a call
        self.banned: list[tuple[float, float]] = []  # from when a ban was acknowledged until it was to be lifted
        self.calls_max = FIRST_CALLS
        machine.world.internet.host(HOST, self._arrives)

    async def _arrives(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        self.begun.append((float(asked.headers[BEGUN]), json.loads(asked.body)["mark"]))
        await self.outside(asked, answer)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def act(self) -> None:
        await self.register_outside()
        await self.make_agents(1, types=("letta_v1_agent",), tools=("outside",))
        owner = self.client("owner")
        await self._limit(owner)
        path, body = f"/v1/conversations/?agent_id={self.agents[0]}", {"isolated_block_labels": []}
        lanes = [None, *[(await owner.insist("POST", path, body))["id"] for _ in range(LANES - 1)]]
        clients = self.clients(LANES)
        await together(
            [
                self._rule(owner),
                *(self._talk(client, n, lane) for n, (client, lane) in enumerate(zip(clients, lanes, strict=True))),
            ]
        )
        await self._permit(owner)

    async def _talk(self, client: ScenarioClient, number: int, lane: str | None) -> None:
        for turn in range(ROUNDS):
            await client.pause(6.0)
            marks = [f"{number}-{turn}-{each}" for each in range(3)]
            first, *others = (f'call outside {{"mark": "{mark}"}}' for mark in marks)
            script = (f"{first} & {others[0]}", others[1], "remember something")
            await client.say(self.agents[0], *script, stream=client.tosses(0.5), conversation=lane)

    async def _rule(self, owner: ScenarioClient) -> None:
        for _ in range(BANS):
            await owner.pause(8.0)
            if owner.tosses(0.5):
                ban = BAN if owner.tosses(0.5) else BY_KIND
                await owner.insist("PATCH", f"/v1/agents/{self.agents[0]}", {"kelpie_permissions": ban})
            else:
                await owner.insist("PUT", "/v1/kelpie/policy", {"permissions": BAN})
            since = self._now()
            await owner.pause(12.0)
            self.banned.append((since, self._now()))
            await self._permit(owner)
            self.calls_max += RAISE_CALLS
            await self._limit(owner)

    async def _permit(self, owner: ScenarioClient) -> None:
        await owner.insist("PATCH", f"/v1/agents/{self.agents[0]}", {"kelpie_permissions": FREE})
        await owner.insist("PUT", "/v1/kelpie/policy", {})

    async def _limit(self, owner: ScenarioClient) -> None:
        cpu_s = (self.calls_max + 2) * CPU_US / 1_000_000
        limits = {"tool_calls_per_hour": self.calls_max, "cpu_seconds_per_hour": cpu_s}
        await owner.insist("PATCH", f"/v1/agents/{self.agents[0]}", {"kelpie_limits": limits})

    def check(self) -> None:
        super().check()
        for since, until in self.banned:
            for at, mark in self.begun:
                if since < at < until:
                    raise Broken("what is forbidden is not run", f"{mark} at {at:.3f}, banned {since:.3f}-{until:.3f}")
        self._every_call_is_recorded_once()
        self._limits_are_held()

    def _every_call_is_recorded_once(self) -> None:
        rows = self.machine.disk.query("SELECT step_id, tool_returns FROM messages WHERE role = 'tool'")
        given = Counter((step, each["call_id"]) for step, results in rows for each in json.loads(results))
        noted = self.machine.disk.query("SELECT step_id, call_id FROM tool_calls")
        if given != Counter((step, call) for step, call in noted):
            raise Broken("every call is recorded once", f"results {given}, records {noted}")
        told = {(step, each["call_id"]): each["text"] for step, results in rows for each in json.loads(results)}
        for step, call, outcome in self.machine.disk.query("SELECT step_id, call_id, outcome FROM tool_calls"):
            if (outcome == "refused") != ("was not run" in told[step, call]):
                raise Broken("a record says what the model was told", f"{outcome}: {told[step, call]}")

    def _limits_are_held(self) -> None:
        rows = self.machine.disk.query(
            "SELECT created_at / ?, SUM(counted), SUM(cpu_us) FROM tool_calls GROUP BY 1", HOUR_US
        )
        for _, calls, cpu_us in rows:
            if calls > self.calls_max + LANES:
                raise Broken("a limit of calls is held", f"{calls} were made of {self.calls_max}")
            if cpu_us > (self.calls_max + 2 + LANES) * CPU_US:
                raise Broken("a limit of processor time is held", f"{cpu_us} us of {self.calls_max + 2} calls")


PERMITS = scenario(
    "permissions-race-calls",
    ChangingPermissions,
    faults=(
        Aim(Fault.crash_before_write, "journal.result", rate=0.03),
        Aim(Fault.crash_after_write, "journal.result", rate=0.03),
        Aim(Fault.crash_after_write, "journal.reply", rate=0.03),
        Aim(Fault.crash_before_write, "outside.effect", rate=0.02),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.02),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.02),
        Aim(Fault.storage_read_fail, "database.read", rate=0.02),
        Aim(Fault.storage_latency, "read.permissions", rate=0.5),
        Aim(Fault.storage_latency, "read.usage", rate=0.3),
    ),
    swarm=(Fault.llm_rate_limit, Fault.storage_latency, Fault.cpu_starvation),
)
