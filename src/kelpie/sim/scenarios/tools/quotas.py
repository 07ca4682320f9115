"""Hourly quotas of agents, and their cached results, over several hours in which the power fails.

Two agents call one deterministic tool in several conversations and by hand, while it is replaced. Every run is counted
once: no crash loses it, and a cached result uses nothing. Limits are passed by no more than the calls in flight, and no
call is refused while something is left. A cached result is given only to the agent that had it, for the same arguments
and the same version of the tool, and not after its time.
"""

import asyncio
import json
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from kelpie.core.tools.confinement import MEGABYTE
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.cells import CPU_US, CellEnvironment
from kelpie.sim.ports.clock import START
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.cell_setup import boot_with_cells
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

HOUR_S = 3600
HOURS = 2
PAUSES_S = (500.0, 30.0, 100.0)  # between the rounds of an hour: longer and shorter than results are kept
LANES = 2  # of each agent
CALLS_MAX = 9
RUNS_MAX = 5  # by the processor time that they take
TOKENS_MAX = 9_000
MEMORY_MB = 64  # of one call: less than the usual
KEPT_S = 300.0
LATE_S = 60.0  # within which the result of code that has ended is kept
WAITS_MAX = 200  # of a second each, until nothing is under way
NAME = "sure"
SOURCE = '''
def sure(word: str) -> str:
    """Says which it is.

    Args:
        word (str): that is asked about
    """
    return "{version}"
'''
_VERSION = re.compile(r'return "(\d+)"')


@dataclass(frozen=True, slots=True)
class CodeRun:
    """One run of the code."""

    agent_id: str
    word: str
    version: int
    ended_s: float


class HourlyQuotas(ServerScenario):
    """Two agents, their clients, and an operator that replaces their tool."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.ran: list[CodeRun] = []
        self.known: list[tuple[float, int]] = []  # when a version of the tool was acknowledged
        self.begun: Counter[str] = Counter()  # how often code of an agent began to run
        self.lost: Counter[tuple[str, int]] = Counter()  # by agent and hour: manual calls whose outcome is unknown
        machine.world.code = self._code

    async def _code(self, inside: CellEnvironment) -> str:
        agent_id, word = inside.env["LETTA_AGENT_ID"], str(inside.arguments["word"])
        found = _VERSION.search(inside.request["source"])
        assert found is not None
        self.begun[agent_id] += 1
        if (held := inside.confinement.memory_bytes) > MEMORY_MB * MEGABYTE:
            self.machine.loop.fail(Broken("a limit of memory is held", f"code of {agent_id} has {held} bytes"))
        await asyncio.sleep(self.machine.loop.rng(f"work/{len(self.ran)}").uniform(0.05, 2.0))
        self.ran.append(CodeRun(agent_id, word, int(found[1]), self._now_s()))
        return f"run-{len(self.ran) - 1}"

    # --- what is done ----------------------------------------------------------------------------------------------

    async def act(self) -> None:
        owner = self.client("owner")
        await self._renew(owner)
        await self.make_agents(2, types=("letta_v1_agent",), tools=[NAME])
        limits = {
            "tool_calls_per_hour": CALLS_MAX,
            "cpu_seconds_per_hour": RUNS_MAX * CPU_US / 1_000_000,
            "tokens_per_hour": TOKENS_MAX,
            "memory_mb": MEMORY_MB,
        }
        await self._limit(owner, limits)
        lanes = [(agent_id, lane) for agent_id in self.agents for lane in await self._lanes(owner, agent_id)]
        clients = list(zip(self.clients(len(lanes)), lanes, strict=True))
        for hour in range(1, HOURS + 1):
            for pause_s in PAUSES_S:
                await together((self._own(owner), *(self._talk(client, *where) for client, where in clients)))
                await self._pass(pause_s)
            await self._pass(hour * HOUR_S - self._now_s())
        for agent_id in self.agents:
            self._limits_are_held(agent_id)
        await self._limit(owner, None)

    def _now_s(self) -> float:
        """The time by the clock that all share."""
        return self.machine.loop.time() + self.machine.world.ahead_s

    async def _pass(self, seconds: float) -> None:
        """Lets time go by when nothing runs."""
        for _ in range(WAITS_MAX):
            if not self.machine.disk.query("SELECT id FROM runs WHERE completed_at IS NULL"):
                self.machine.world.ahead_s += max(0.0, seconds)
                return
            await asyncio.sleep(1.0)
        raise Broken("every run ends", f"something went on for {WAITS_MAX} s")

    async def _lanes(self, owner: ScenarioClient, agent_id: str) -> list[str | None]:
        path, body = f"/v1/conversations/?agent_id={agent_id}", {"isolated_block_labels": []}
        return [None, *[(await owner.insist("POST", path, body))["id"] for _ in range(LANES - 1)]]

    async def _limit(self, owner: ScenarioClient, limits: dict[str, Any] | None) -> None:
        for agent_id in self.agents:
            await owner.insist("PATCH", f"/v1/agents/{agent_id}", {"kelpie_limits": limits})

    async def _renew(self, owner: ScenarioClient) -> None:
        version = len(self.known)
        source, sure = SOURCE.format(version=version), {"deterministic": True}
        await owner.insist("PUT", "/v1/tools/", {"source_code": source, "kelpie_sandbox": sure})
        self.known.append((self._now_s(), version))

    async def _own(self, owner: ScenarioClient) -> None:
        """Calls the tool by hand, and replaces it now and then."""
        for agent_id in self.agents:
            await owner.pause(10.0)
            path, word = f"/v1/agents/{agent_id}/tools/{NAME}/run", owner.picks(("one", "two"))
            asked_s = self._now_s()
            answer = await owner.ask("POST", path, {"args": {"word": word}})
            if answer is None or answer.status != 200:
                self.lost[agent_id, int(asked_s // HOUR_S)] += 1
            elif (told := answer.json())["status"] == "success":
                self._is_due(str(told["func_return"]), agent_id, word, asked_s)
            if owner.tosses(0.3):
                await self._renew(owner)

    async def _talk(self, client: ScenarioClient, agent_id: str, lane: str | None) -> None:
        await client.pause(10.0)
        asked_s, word = self._now_s(), client.picks(("one", "two"))
        calls = f'call {NAME} {{"word": "{word}"}} & call {NAME} {{"word": "{word}"}}'
        heard = await client.say(agent_id, calls, stream=client.tosses(0.5), conversation=lane)
        for text in heard.results(NAME):
            self._is_due(text, agent_id, word, asked_s)

    def _is_due(self, text: str, agent_id: str, word: str, asked_s: float) -> None:
        """A result is one that this very call could have had."""
        ran = self.ran[int(text.removeprefix("run-"))]
        if (ran.agent_id, ran.word) != (agent_id, word):
            raise Broken("a result is its agent's own", f"{agent_id} was told of '{word}' what came of {ran}")
        known = max(version for at_s, version in self.known if at_s <= asked_s)
        if ran.version < known:
            raise Broken("a result is of the code as it is", f"{ran}, and version {known} was known at {asked_s:.1f}")
        if asked_s - ran.ended_s > KEPT_S + LATE_S:
            raise Broken("a result is kept for its time", f"{ran} was told to who asked at {asked_s:.1f}")

    # --- what is there at the end ----------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        self._what_ran_is_counted_once()

    def _what_ran_is_counted_once(self) -> None:
        query = "SELECT COALESCE(SUM(counted), 0), COALESCE(SUM(cpu_us), 0) FROM tool_calls WHERE agent_id = ?"
        for agent_id in self.agents:
            ((calls, cpu_us),) = self.machine.disk.query(query, agent_id)
            if self.begun[agent_id] > calls + sum(n for (whose, _), n in self.lost.items() if whose == agent_id):
                raise Broken("what ran is counted", f"{self.begun[agent_id]} ran, {calls} are counted, {self.lost}")
            if cpu_us > self.begun[agent_id] * CPU_US:
                raise Broken("what is used is counted once", f"{cpu_us} us of {self.begun[agent_id]} runs")
        told = Counter[str]()
        rows = self.machine.disk.query("SELECT step_id, tool_returns FROM messages WHERE role = 'tool'")
        texts = {(step, each["call_id"]): str(each["text"]) for step, given in rows for each in json.loads(given)}
        for step, call in self.machine.disk.query("SELECT step_id, call_id FROM tool_calls WHERE cpu_us > 0"):
            told[texts.get((step, call), "")] += 1
        if twice := [text for text, times in told.items() if text.startswith("run-") and times > 1]:
            raise Broken("what is used is counted once", f"{twice} more than once")

    def _limits_are_held(self, agent_id: str) -> None:
        query = """SELECT (created_at - ?) / 3600000000, SUM(counted), SUM(cpu_us), SUM(outcome = 'refused')
            FROM tool_calls WHERE agent_id = ? GROUP BY 1"""
        flying = LANES + 1  # one for each conversation, and one by hand
        for hour, calls, cpu_us, refused in self.machine.disk.query(query, START, agent_id):
            seen = f"{agent_id} in hour {hour}: {calls} calls, {cpu_us} us, {refused} refused"
            if calls > CALLS_MAX + flying:
                raise Broken("a limit of calls is held", seen)
            if cpu_us > (RUNS_MAX + flying) * CPU_US:
                raise Broken("a limit of processor time is held", seen)
            lost = self.lost[agent_id, hour]  # which may have been in flight when a call was refused
            if refused and calls + lost < CALLS_MAX and cpu_us + lost * CPU_US < RUNS_MAX * CPU_US:
                raise Broken("nobody is refused while something is left", seen)
        used: dict[int, list[int]] = {}
        steps = "SELECT created_at / 3600000000, usage FROM steps WHERE agent_id = ? ORDER BY created_at"
        for hour, usage in self.machine.disk.query(steps, agent_id):
            used.setdefault(hour, []).append(json.loads(usage)["total_tokens"])
        for hour, tokens in used.items():
            if sum(tokens) > TOKENS_MAX + LANES * max(tokens):
                raise Broken("a limit of tokens is held", f"{agent_id} in hour {hour}: {tokens}")


ALLOWANCES = replace(
    scenario(
        "limits-and-kept-results",
        HourlyQuotas,
        faults=(
            Aim(Fault.crash_before_write, "journal.result", rate=0.04),
            Aim(Fault.crash_after_write, "journal.result", rate=0.04),
            Aim(Fault.crash_after_write, "journal.reply", rate=0.03),
            Aim(Fault.process_crash, "cells.after", rate=0.1),
            Aim(Fault.process_timeout, "cells.run", rate=0.05),
            Aim(Fault.storage_write_fail, "database.commit", rate=0.01),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.01),
            Aim(Fault.storage_read_fail, "database.read", rate=0.01),
            Aim(Fault.storage_latency, "write.journal", rate=0.1),
        ),
        swarm=(Fault.llm_rate_limit, Fault.storage_latency, Fault.cpu_starvation, Fault.out_of_memory),
        settings=SETTINGS,
    ),
    boot=boot_with_cells,
)
