"""Schedules and webhooks while the power fails around every commit, writes fail, clocks jump and models fail.

Each due time has one firing, each firing gives its agent the messages of its schedule at most once, in order and where
they belong, under the options of its schedule, and ends as its run did, no schedule stands still or is due while it is
paused, missed times follow their policy, two people who change a schedule at once keep what both of them wrote, and a
delivery that a program repeats is one message of each webhook that gets it, in the conversation of that webhook.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kelpie.core.time import MICROS_PER_SECOND
from kelpie.core.triggers.schedules import ATTEMPTS_MAX, ON_TIME
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.basic.two_servers import second_server
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import RunningKelpie
from kelpie.sim.scenarios.fixtures.pending_work import BATCH_JOBS, FIRINGS, RUNS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

BEFORE, AFTER = Fault.crash_before_write, Fault.crash_after_write
QUIET_S = 900.0  # longer than the pauses after the first failures of a firing
MINUTE = 60 * MICROS_PER_SECOND
LATE = 3 * MINUTE
QUIET_LEAST_S = 300.0  # a schedule that stands still is late then
REST_S = 120.0  # for the runs of the last firings
MINUTES = 4
DELIVERIES = 4
BATCHED = 3  # messages of a scheduled batch
RETRY_MAX = 7200 * MICROS_PER_SECOND  # the longest pause before another attempt
BELL = "bell.sim"
OPTIONS = {  # of some schedules
    "max_steps": 20,
    "callback_url": f"http://{BELL}/done",
    "include_return_message_types": ["assistant_message"],
}
_FIRINGS = """
    SELECT f.id, f.schedule_id, f.due_at, f.manual, f.status, f.attempts, f.attempt_at, f.run_id, f.batch_id, f.error,
           f.created_at, s.missed, json_array_length(s.said, '$.messages')
    FROM firings f JOIN schedules s ON s.id = f.schedule_id
"""
_WORDS = """
    SELECT m.otid, m.agent_id, m.conversation_id, m.content, s.agent_id, s.said FROM messages m
    JOIN firings f ON m.otid LIKE f.id || '-%' JOIN schedules s ON s.id = f.schedule_id WHERE m.role = 'user'
"""
# Firings with their run, and how many runs they had.
_RUNS = """
    SELECT f.id, f.status, f.attempts, f.attempt_at, r.status,
           (SELECT count(*) FROM runs WHERE json_extract(runs.metadata, '$.firing_id') = f.id)
    FROM firings f LEFT JOIN runs r ON r.id = f.run_id
"""
# What runs of firings were given: those of a batch have their callback in its job.
_GIVEN = """
    SELECT f.id, s.id, s.said, r.input, r.request_config, r.callback_url FROM firings f
    JOIN schedules s ON s.id = f.schedule_id JOIN runs r ON r.id = f.run_id
    UNION ALL SELECT f.id, s.id, s.said, r.input, r.request_config, j.callback_url FROM firings f
    JOIN schedules s ON s.id = f.schedule_id JOIN jobs j ON j.id = f.batch_id
    JOIN batch_items i ON i.batch_id = j.id JOIN runs r ON r.id = i.run_id
"""


@dataclass(frozen=True, slots=True)
class _Firing:
    """A firing on the disk, with what its schedule says about it."""

    id: str
    schedule: str
    due_at: int
    manual: int
    status: str
    attempts: int
    attempt_at: int
    run_id: str | None
    batch_id: str | None
    error: str | None
    created_at: int
    missed: str
    messages: int


@dataclass(slots=True)
class Edits:
    """What two people last wrote into a schedule, each into a field of his own, and all that may count since."""

    may_be: dict[str, list[Any]]

    def tried(self, name: str, value: Any, told: Response | None) -> None:
        if told is not None and told.status == 200:
            self.may_be[name] = [value]
        else:
            self.may_be[name].append(value)


class Schedules(ServerScenario):
    """Two agents with schedules of every minute, single times, and a webhook each; a person changes the schedules."""

    minutes = 1  # between two times of a recurring schedule
    policies = ("run_once", "run_all", "skip")

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.removed: set[str] = set()
        self.touched: set[str] = set()  # schedules that somebody tried to change
        self.edited: dict[str, Edits] = {}  # by schedule
        self.delivered: set[str] = set()  # deliveries that were acknowledged
        self.threads: dict[str, str | None] = {}  # by webhook: its conversation
        machine.world.internet.host(BELL, _ring)

    @property
    def rule(self) -> str:
        return f"*/{self.minutes} * * * *"

    def said(self, text: str) -> dict[str, Any]:
        """What an agent gets, as a part of the body of a schedule."""
        return {"messages": [{"role": "user", "content": text}]}

    async def act(self) -> None:
        await self.make_agents(2)
        maker = self.client("planner")
        for number, agent_id in enumerate(self.agents):
            for policy in self.policies[: 2 + number]:
                body = self.said(f"every minute {policy}\nremember {policy}") | {"missed_policy": policy}
                body |= OPTIONS if policy == "run_once" else {}
                if policy == "run_all":  # it has a conversation of its own
                    thread = await maker.insist("POST", f"/v1/conversations/?agent_id={agent_id}", {})
                    body["conversation_id"] = thread["id"]
                await maker.insist("POST", f"/v1/agents/{agent_id}/schedule", body | {"recurrence_rule": self.rule})
        programs = (self._program(self.client(f"program-{n}"), agent_id) for n, agent_id in enumerate(self.agents))
        await together(
            (*programs, self._edit_at_once(), self._person(self.client("person")), self._talk(self.client("talker")))
        )

    async def _edit_at_once(self) -> None:
        """Two people change the same schedule at the same time, each another field."""
        one, other = self.client("editor-of-names"), self.client("editor-of-steps")
        base = f"/v1/agents/{self.agents[0]}/schedule"
        body = {"message": "edited", "recurrence_rule": "0 0 1 1 *", "name": "edited"}
        made = (await one.insist("POST", base, body))["id"]
        path = f"{base}/{made}"
        edits = self.edited[made] = Edits({"name": [body["name"]], "max_steps": [None]})
        for number in range(1, 9):
            await one.pause(4.0)
            steps = self._edit(other, path, edits, "max_steps", number)
            await together((self._edit(one, path, edits, "name", f"name {number}"), steps))
            self._edits()

    async def _edit(self, client: ScenarioClient, path: str, edits: Edits, name: str, value: str | int) -> None:
        edits.tried(name, value, await client.ask("PATCH", path, {name: value}))

    async def _talk(self, client: ScenarioClient) -> None:
        for _ in range(MINUTES):
            await client.pause(60.0)
            await client.say(client.picks(self.agents))

    async def _person(self, client: ScenarioClient) -> None:
        """Pauses, resumes, fires by hand, deletes and reads schedules."""
        for _ in range(MINUTES * 3):
            await client.pause(30.0)
            self._rests()
            agent_id = client.picks(self.agents)
            base = f"/v1/agents/{agent_id}/schedule"
            told = await client.ask("GET", base)
            known: list[dict[str, Any]] = (
                [] if told is None or told.status != 200 else told.json()["scheduled_messages"]
            )
            if not known or client.tosses(0.3):
                time = {"scheduled_at": (self._now() + 20 * MICROS_PER_SECOND) / 1000}
                await client.ask("POST", base, self.said("once") | {"schedule": time})
                continue
            chosen = client.picks(known)["id"]
            if chosen in self.edited:
                continue
            self.touched.add(chosen)
            path = f"{base}/{chosen}"
            if client.tosses(0.4):
                await client.ask("POST", f"{path}/run")
            elif client.tosses(0.7):
                await client.ask("PATCH", path, {"paused": client.tosses(0.5)})
            else:
                self.removed.add(path.rsplit("/", 1)[1])
                await client.ask("DELETE", path)

    async def _program(self, client: ScenarioClient, agent_id: str) -> None:
        """Delivers each event until it is acknowledged, and sometimes once more; some to two webhooks of an agent."""
        path = f"/v1/agents/{agent_id}/hooks"
        thread = (await client.insist("POST", f"/v1/conversations/?agent_id={agent_id}", {}))["id"]
        hooks = [
            await client.insist("POST", path, {"name": name, "conversation_id": into})
            for name, into in (("events", None), ("others", thread if agent_id == self.agents[0] else None))
        ]
        for number in range(DELIVERIES):
            await client.pause(30.0)
            key = f"{client.name}-event-{number}"
            for hook in hooks if client.tosses(0.4) else hooks[:1]:
                await self._deliver_until_taken(client, hook, key)

    async def _deliver_until_taken(self, client: ScenarioClient, hook: dict[str, Any], key: str) -> None:
        name = f"{key} for {hook['name']}"
        for _ in range(20):
            if await self._deliver(client, hook["path"], name, key) == 202:
                self.delivered.add(name)
                self.threads[name] = hook["conversation_id"]
                if client.tosses(0.6):
                    break
            await client.pause(5.0)

    async def _deliver(self, client: ScenarioClient, path: str, name: str, key: str) -> int | None:
        await self.machine.up()
        try:
            told = await client.connection.request("POST", path, {"event": name}, headers={"Idempotency-Key": key})
        except ConnectionLost:
            return None
        if told.status not in (202, 409, 429, 503):
            raise Broken("a delivery is taken or put off", f"{name}: {told.status} {told.body!r}")
        return told.status

    async def settle(self) -> None:
        """Every schedule has gone on by itself; then all are paused, so that nothing is under way."""
        self._rests()
        now = self._now()
        query = "SELECT id, next_at, recurrence FROM schedules WHERE next_at IS NOT NULL"
        for schedule, next_at, recurrence in self.machine.disk.query(query):
            ahead = LATE + self.minutes * MINUTE
            if next_at < now - LATE or (recurrence == self.rule and next_at > now + ahead):
                raise Broken("no schedule stands still", f"{schedule} is due in {(next_at - now) // 1_000_000} s")
        planner = self.client("planner")
        for agent_id in self.agents:
            base = f"/v1/agents/{agent_id}/schedule"
            for each in (await planner.insist("GET", base))["scheduled_messages"]:
                await planner.insist("PATCH", f"{base}/{each['id']}", {"paused": True})
        await asyncio.sleep(REST_S)
        await super().settle()

    def check(self) -> None:
        super().check()
        firings = [_Firing(*row) for row in self.machine.disk.query(_FIRINGS)]
        heard = self._heard()
        for each in firings:
            self._is_heard_once(each, heard.get(each.id, []))
        self._is_what_was_said()
        self._runs()
        self._options()
        self._rests()
        self._times(firings)
        self._edits()
        self._deliveries()

    def _heard(self) -> dict[str, list[int]]:
        """The messages of each firing, by their numbers, as its agent heard them."""
        found: dict[str, list[int]] = {}
        query = "SELECT otid FROM messages WHERE role = 'user' AND otid LIKE 'firing-%' ORDER BY seq"
        for (otid,) in self.machine.disk.query(query):
            firing, _, number = otid.rsplit("-", 2)
            found.setdefault(firing, []).append(int(number))
        return found

    def _is_what_was_said(self) -> None:
        """A firing says the words of its schedule, to its agent and in its conversation."""
        for otid, agent_id, thread, content, owner, said in self.machine.disk.query(_WORDS):
            wanted = json.loads(said)
            number = int(otid.rpartition("-")[2])
            text = json.loads(content)[0]["text"]
            if wanted["messages"][number]["content"][0]["text"] not in text:
                raise Broken("a firing says what its schedule says", f"{otid} said {text!r} of {wanted}")
            if (agent_id, thread) != (owner, wanted["conversation_id"]):
                raise Broken("a firing says what its schedule says", f"{otid} was said in {thread} of {agent_id}")

    def _runs(self) -> None:
        """A firing ends as its run did, and has had no more runs than attempts."""
        ends = {"completed": ("done",), "cancelled": ("cancelled",), "failed": ("dead", "waiting")}
        for firing, status, attempts, attempt_at, ended, runs in self.machine.disk.query(_RUNS):
            where = f"{firing} is {status} after {attempts} attempts, the next at {attempt_at}: {runs} runs, {ended}"
            if runs > attempts or (ended in ends and status not in ends[ended]):
                raise Broken("a firing ends as its run did", where)
            if (attempt_at is not None) != (status == "waiting"):
                raise Broken("only a firing that waits has another attempt", where)

    def _options(self) -> None:
        """What a firing says is said under the options of its schedule."""
        for firing, schedule, said, given, config, url in self.machine.disk.query(_GIVEN):
            if schedule in self.edited:
                continue
            wanted, types = json.loads(said), json.loads(config).get("include_return_message_types")
            steps, asked = json.loads(given)["max_steps"], (wanted["callback_url"], wanted["return_types"])
            if wanted["max_steps"] not in (None, steps) or asked != (url, types):
                raise Broken("a firing takes the options of its schedule along", f"{firing}: {steps}, {url}, {types}")

    def _rests(self) -> None:
        if due := self.machine.disk.query("SELECT id, next_at FROM schedules WHERE paused AND next_at IS NOT NULL"):
            raise Broken("a schedule that is paused is not due", f"{due}")

    def _is_heard_once(self, firing: "_Firing", heard: list[int]) -> None:
        where = f"{firing} was heard as {heard}"
        if len(set(heard)) < len(heard):
            raise Broken("a firing is heard once", where)
        if heard != sorted(heard):
            raise Broken("the messages of a firing are heard in order", where)
        if firing.status == "done" and not firing.error and len(heard) < firing.messages and self._completed(firing):
            raise Broken("a firing is heard once", where)
        if firing.status == "running" or (firing.status == "waiting" and firing.attempt_at < self._now() - LATE):
            raise Broken("a firing ends", where)
        if firing.status == "waiting" and firing.attempt_at > self._now() + RETRY_MAX:
            raise Broken("a firing ends", where)
        if firing.status == "dead" and not heard and firing.attempts < ATTEMPTS_MAX and "conversation" not in where:
            raise Broken("a firing that was not heard is tried again", where)

    def _times(self, firings: Sequence["_Firing"]) -> None:
        """Each due time has one firing, missed ones follow their policy, and with a true clock none is left out."""
        times = Counter((each.schedule, each.due_at, each.manual) for each in firings)
        if doubled := [each for each, count in times.items() if count > 1]:
            raise Broken("a due time has one firing", f"{doubled}")
        timed = [each for each in firings if not each.manual]
        late = [each for each in timed if each.status != "skipped" and each.created_at - each.due_at > ON_TIME]
        if made_up := [each for each in late if each.missed == "skip"]:
            raise Broken("missed times follow their policy", f"{made_up}")
        looks = Counter((each.schedule, each.created_at) for each in late if each.missed == "run_once")
        if many := [each for each, count in looks.items() if count > 1]:
            raise Broken("missed times follow their policy", f"{many}")
        if self.machine.faults.fired(Fault.clock_jump) or self.machine.faults.fired(Fault.clock_skew):
            return
        for schedule in sorted({each.schedule for each in timed if each.missed == "run_all"} - self.touched):
            due = sorted(each.due_at for each in timed if each.schedule == schedule)
            if gaps := [earlier for earlier, later in pairwise(due) if later - earlier > self.minutes * MINUTE]:
                raise Broken("each due time has a firing", f"{schedule} has none after {gaps}")

    def _edits(self) -> None:
        for schedule, edits in self.edited.items():
            for name, said in self.machine.disk.query("SELECT name, said FROM schedules WHERE id = ?", schedule):
                stored = {"name": name, "max_steps": json.loads(said)["max_steps"]}
                lost = {each: stored[each] for each, known in edits.may_be.items() if stored[each] not in known}
                if lost:
                    raise Broken("people who change a schedule at once keep both changes", f"{lost}, {edits}")

    def _now(self) -> int:
        """The time of the server's clock."""
        running = self.machine.running
        assert isinstance(running, RunningKelpie)
        return running.kelpie.world.clock.now()

    def _completed(self, firing: "_Firing") -> bool:
        if firing.batch_id is not None:
            return True
        query = "SELECT 1 FROM runs WHERE id = ? AND status = 'completed' AND step_count > 0"
        return bool(self.machine.disk.query(query, firing.run_id or ""))

    def _deliveries(self) -> None:
        texts = [
            json.loads(content)[0]["text"]
            for (content,) in self.machine.disk.query("SELECT content FROM messages WHERE role = 'user'")
        ]
        given_to_runs = self.machine.disk.query("SELECT input, conversation_id FROM runs")
        for name in sorted(self.delivered):
            heard = sum(f'"{name}"' in text for text in texts)
            stored = [into for given, into in given_to_runs if name in str(given)]
            if heard > 1 or len(stored) != 1:
                raise Broken("a delivery is one message", f"{name} was heard {heard} times and has {len(stored)} runs")
            if stored != [self.threads[name]]:
                raise Broken("a delivery is heard where it belongs", f"{name} in {stored}, not {self.threads[name]}")


async def _ring(asked: OutgoingRequest, answer: OutgoingResponse) -> None:
    await answer.start(204, {})


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


class ScheduledBatches(Schedules):
    """The same with schedules whose messages have a turn each."""

    minutes = 3
    policies = ("run_once", "run_all")

    def said(self, text: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": f"{text}, {n}"} for n in range(BATCHED)], "batch": True}


_FAILURES = (
    Aim(Fault.storage_write_fail, "database.commit", rate=0.03),
    Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.02),
    Aim(Fault.storage_read_fail, "database.read", rate=0.02),
)

_PLOTS = (
    (Aim(BEFORE, "journal.open", nth=3), Aim(AFTER, "journal.step", nth=5)),
    _FAILURES,
    (
        Aim(Fault.clock_jump, "clock.now", rate=0.02, times_max=12),
        Aim(Fault.clock_skew, "clock.boot", rate=0.7),
        Aim(BEFORE, "database.begin", rate=0.003, times_max=2),
    ),
    (
        Aim(Fault.llm_timeout, "llm.reply", rate=0.1),
        Aim(Fault.llm_rate_limit, "llm.with_retry_after", rate=0.1),
        Aim(Fault.llm_malformed, "llm.status", rate=0.4),  # some turns fail after their first step
        Aim(Fault.network_partition, "network.provider", rate=0.01, times_max=2),
    ),
    (
        Aim(Fault.network_packet_loss, "network.client", rate=0.05),
        Aim(Fault.network_delay, "network.client", rate=0.1),
        Aim(Fault.storage_latency, "database.read", rate=0.1),
    ),
)

SCHEDULES = scenario(
    "schedules-and-webhooks",
    Schedules,
    faults=(Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=3),),
    plots=_PLOTS,
    swarm=(Fault.storage_latency, Fault.storage_busy, Fault.cpu_starvation),
    quiet_s=QUIET_S,
    quiet_least_s=QUIET_LEAST_S,
    pending=(RUNS, BATCH_JOBS, FIRINGS),
)

TWO_SCHEDULERS = scenario(
    "two-schedulers-one-disk",
    TwoSchedulers,
    faults=(
        Aim(Fault.storage_latency, "database.write", rate=0.1),
        Aim(Fault.storage_latency, "database.read", rate=0.1),
        Aim(Fault.llm_malformed, "llm.status", rate=0.4),  # both try failed firings again, at the same time
    ),
    swarm=(Fault.network_delay, Fault.cpu_starvation),
    quiet_s=QUIET_S,
    quiet_least_s=QUIET_LEAST_S,
    pending=(RUNS, BATCH_JOBS, FIRINGS),
)

SCHEDULED_BATCHES = scenario(
    "scheduled-batches",
    ScheduledBatches,
    faults=(Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=3),),
    plots=_PLOTS,
    swarm=(Fault.storage_latency, Fault.storage_busy, Fault.cpu_starvation),
    quiet_s=QUIET_S,
    quiet_least_s=QUIET_LEAST_S,
    pending=(RUNS, BATCH_JOBS, FIRINGS),
)
