"""Schedules and webhooks while the power fails around every commit, writes fail, clocks jump and models fail.

Each due time has one firing, each firing gives its agent its message at most once and ends, no schedule stands still,
and a delivery that a program repeats is one message.
"""

import asyncio
import json
from collections import Counter
from typing import Any

from kelpie.core.time import MICROS_PER_SECOND
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.basic.two_servers import second_server
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import RunningKelpie
from kelpie.sim.scenarios.fixtures.server_scenario import ServerScenario, scenario, together

BEFORE, AFTER = Fault.crash_before_write, Fault.crash_after_write
QUIET_S = 900.0  # longer than the pauses after the first failures of a firing
LATE = 180 * MICROS_PER_SECOND
REST_S = 120.0  # for the runs of the last firings
MINUTES = 4
DELIVERIES = 4


class Schedules(ServerScenario):
    """Two agents with schedules of every minute, single times, and a webhook each; a person changes the schedules."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.removed: set[str] = set()
        self.delivered: set[str] = set()  # deliveries that were acknowledged

    async def act(self) -> None:
        await self.make_agents(2)
        maker = self.client("planner")
        for number, agent_id in enumerate(self.agents):
            for policy in ("run_once", "run_all", "skip")[: 2 + number]:
                body = {"message": f"every minute {policy}", "recurrence_rule": "* * * * *", "missed_policy": policy}
                await maker.insist("POST", f"/v1/agents/{agent_id}/schedule", body)
        programs = (self._program(self.client(f"program-{n}"), agent_id) for n, agent_id in enumerate(self.agents))
        await together((*programs, self._person(self.client("person")), self._talk(self.client("talker"))))

    async def _talk(self, client: ScenarioClient) -> None:
        for _ in range(MINUTES):
            await client.pause(60.0)
            await client.say(client.picks(self.agents))

    async def _person(self, client: ScenarioClient) -> None:
        """Pauses, resumes, fires by hand, deletes and reads schedules."""
        for _ in range(MINUTES * 3):
            await client.pause(30.0)
            agent_id = client.picks(self.agents)
            base = f"/v1/agents/{agent_id}/schedule"
            told = await client.ask("GET", base)
            known: list[dict[str, Any]] = (
                [] if told is None or told.status != 200 else told.json()["scheduled_messages"]
            )
            if not known or client.tosses(0.3):
                time = {"scheduled_at": (self._now() + 20 * MICROS_PER_SECOND) / 1000}
                body = {"messages": [{"role": "user", "content": "once"}], "schedule": time}
                await client.ask("POST", base, body)
                continue
            path = f"{base}/{client.picks(known)['id']}"
            if client.tosses(0.4):
                await client.ask("POST", f"{path}/run")
            elif client.tosses(0.7):
                await client.ask("PATCH", path, {"paused": client.tosses(0.5)})
            else:
                self.removed.add(path.rsplit("/", 1)[1])
                await client.ask("DELETE", path)

    async def _program(self, client: ScenarioClient, agent_id: str) -> None:
        """Delivers each event until it is acknowledged, and sometimes once more."""
        hook = await client.insist("POST", f"/v1/agents/{agent_id}/hooks", {"name": "events"})
        for number in range(DELIVERIES):
            await client.pause(30.0)
            name = f"{client.name}-event-{number}"
            for _ in range(20):
                status = await self._deliver(client, hook["path"], name)
                if status == 202:
                    self.delivered.add(name)
                    if client.tosses(0.6):
                        break
                await client.pause(5.0)

    async def _deliver(self, client: ScenarioClient, path: str, name: str) -> int | None:
        await self.machine.up()
        try:
            told = await client.connection.request("POST", path, {"event": name}, headers={"Idempotency-Key": name})
        except ConnectionLost:
            return None
        if told.status not in (202, 409, 429, 503):
            raise Broken("a delivery is taken or put off", f"{name}: {told.status} {told.body!r}")
        return told.status

    async def settle(self) -> None:
        """Every schedule has gone on by itself; then all are paused, so that nothing is under way."""
        now = self._now()
        for schedule, next_at in self.machine.disk.query("SELECT id, next_at FROM schedules WHERE next_at IS NOT NULL"):
            if next_at < now - LATE:
                raise Broken("no schedule stands still", f"{schedule} is due since {(now - next_at) // 1_000_000} s")
        planner = self.client("planner")
        for agent_id in self.agents:
            base = f"/v1/agents/{agent_id}/schedule"
            for each in (await planner.insist("GET", base))["scheduled_messages"]:
                await planner.insist("PATCH", f"{base}/{each['id']}", {"paused": True})
        await asyncio.sleep(REST_S)
        await super().settle()

    def check(self) -> None:
        super().check()
        disk = self.machine.disk
        said = Counter(
            otid for (otid,) in disk.query("SELECT otid FROM messages WHERE role = 'user' AND otid IS NOT NULL")
        )
        now = self._now()
        rows = disk.query("SELECT id, schedule_id, due_at, manual, status, attempts, attempt_at, run_id FROM firings")
        times = Counter((schedule, due, manual) for _, schedule, due, manual, *_ in rows)
        if doubled := [each for each, count in times.items() if count > 1]:
            raise Broken("a due time has one firing", f"{doubled}")
        for firing, _, _, _, status, attempts, attempt_at, run_id in rows:
            heard = sum(count for otid, count in said.items() if otid.startswith(f"{firing}-"))
            where = f"{firing} is {status} after {attempts} attempts, with {run_id}, and was heard {heard} times"
            if heard > 1 or (status == "done" and heard != 1 and run_id is not None and self._completed(run_id)):
                raise Broken("a firing is heard once", where)
            if status == "running" or (status == "waiting" and attempt_at < now - LATE):
                raise Broken("a firing ends", where)
        self._deliveries()

    def _now(self) -> int:
        """The time of the server's clock."""
        running = self.machine.running
        assert isinstance(running, RunningKelpie)
        return running.kelpie.world.clock.now()

    def _completed(self, run_id: str) -> bool:
        query = "SELECT 1 FROM runs WHERE id = ? AND status = 'completed' AND step_count > 0"
        return bool(self.machine.disk.query(query, run_id))

    def _deliveries(self) -> None:
        texts = [
            json.loads(content)[0]["text"]
            for (content,) in self.machine.disk.query("SELECT content FROM messages WHERE role = 'user'")
        ]
        inputs = [str(given) for (given,) in self.machine.disk.query("SELECT input FROM runs")]
        for name in sorted(self.delivered):
            heard = sum(f'"{name}"' in text for text in texts)
            stored = sum(name in given for given in inputs)
            if heard > 1 or stored != 1:
                raise Broken("a delivery is one message", f"{name} was heard {heard} times and has {stored} runs")


class TwoSchedulers(Schedules):
    """The same with a second server on the same disk: both want to fire everything."""

    alone = False
    rests = False

    async def act(self) -> None:
        rival = await second_server(self.machine)
        await super().act()
        rival.node.crash()

    async def settle(self) -> None:
        visitor = self.client("first-visitor")
        for agent_id in self.agents:  # what the rival took away is taken back
            await visitor.say(agent_id)
        await super().settle()


_FAILURES = (
    Aim(Fault.storage_write_fail, "database.commit", rate=0.03),
    Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.02),
    Aim(Fault.storage_read_fail, "database.read", rate=0.02),
)

SCHEDULES = scenario(
    "schedules-and-webhooks",
    Schedules,
    faults=(Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=3),),
    plots=(
        (Aim(BEFORE, "journal.open", nth=3), Aim(AFTER, "journal.step", nth=5)),
        _FAILURES,
        (
            Aim(Fault.clock_jump, "clock.now", rate=0.005, times_max=6),
            Aim(Fault.clock_skew, "clock.boot", rate=0.7),
            Aim(BEFORE, "database.begin", rate=0.003, times_max=2),
        ),
        (
            Aim(Fault.llm_timeout, "llm.reply", rate=0.1),
            Aim(Fault.llm_rate_limit, "llm.with_retry_after", rate=0.1),
            Aim(Fault.network_partition, "network.provider", rate=0.01, times_max=2),
        ),
        (
            Aim(Fault.network_packet_loss, "network.client", rate=0.05),
            Aim(Fault.network_delay, "network.client", rate=0.1),
        ),
    ),
    swarm=(Fault.storage_latency, Fault.storage_busy, Fault.cpu_starvation),
    quiet_s=QUIET_S,
)

TWO_SCHEDULERS = scenario(
    "two-schedulers-one-disk",
    TwoSchedulers,
    faults=(
        Aim(Fault.storage_latency, "database.write", rate=0.1),
        Aim(Fault.storage_latency, "database.read", rate=0.1),
    ),
    swarm=(Fault.network_delay, Fault.cpu_starvation),
    quiet_s=QUIET_S,
)
