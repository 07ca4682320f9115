"""Agents that pause while clocks jump, the disk fails and the power is cut: a pause is stored as a whole or not at all,
messages are answered with one step while it lasts, and it never lasts longer than was asked.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from kelpie.core.time import MICROS_PER_SECOND
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

TYPES = ("memgpt_agent", "memgpt_v2_agent")
PAUSE = "pause_heartbeats"
ROUNDS = 3
MINUTES = (1, 3, 5)
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class AcknowledgedPause:
    """A pause that was acknowledged: its longest duration, in time that does not jump, and the life of the node."""

    minutes: int
    over_s: float
    boot: int


class PausingAgents(ServerScenario):
    async def act(self) -> None:
        self.count = 0
        await self.make_agents(2, types=TYPES, tools=[PAUSE])
        await together(
            self._live(client, agent_id) for client, agent_id in zip(self.clients(2), self.agents, strict=True)
        )

    async def _live(self, client: ScenarioClient, agent_id: str) -> None:
        for number in range(ROUNDS):
            await client.pause()
            rest = await self._rest(client, agent_id, MINUTES[number])
            if client.tosses(0.2):
                await self.machine.restart()
            await self._work(client, agent_id, rest)
            await asyncio.sleep(rest.over_s - self.machine.loop.time() + 1.0 if rest else MINUTE_S)
            await self._work(client, agent_id, rest)

    async def _send(self, client: ScenarioClient, agent_id: str, line: str) -> tuple[str, dict[str, Any] | None]:
        """Sends a message with a mark of its own; the answer is None when it is unknown or was a failure."""
        self.count += 1
        mark = f"nap-{self.count}-x"
        answer = await client.ask("POST", f"/v1/agents/{agent_id}/messages", {"input": f"{mark}\n{line}"})
        return mark, answer.json() if answer is not None and answer.status == 200 else None

    async def _rest(self, client: ScenarioClient, agent_id: str, minutes: int) -> AcknowledgedPause | None:
        after = 'call core_memory_append {"label": "human", "content": "never"}'
        mark, answer = await self._send(client, agent_id, f'call {PAUSE} {{"minutes": {minutes}}} & {after}')
        if answer is None:
            return None
        stop = answer["stop_reason"]
        if (stop["stop_reason"], stop.get("kelpie_stop_reason")) != ("end_turn", PAUSE):
            raise Broken("a pause ends the turn at once", f"{mark} of {agent_id} stopped with {stop}")
        [(begin, end)] = self.machine.disk.query("SELECT paused_at, paused_until FROM agents WHERE id = ?", agent_id)
        if end - begin != minutes * 60 * MICROS_PER_SECOND:
            raise Broken("a pause is stored as it was asked for", f"{mark}: {minutes} minutes are {begin} to {end}")
        return AcknowledgedPause(minutes, self.machine.loop.time() + minutes * MINUTE_S, self.machine.boots)

    async def _work(self, client: ScenarioClient, agent_id: str, rest: AcknowledgedPause | None) -> None:
        began_s = self.machine.loop.time()
        append = f'"label": "human", "content": "work {self.count}", "request_heartbeat": true'
        mark, answer = await self._send(client, agent_id, f"call core_memory_append {{{append}}}")
        if answer is None:
            return
        asked = sum(mark in str(request.body["messages"][-1:]) for request in self.machine.llm.seen)
        steps = answer["usage"]["step_count"]
        if answer["stop_reason"].get("kelpie_stop_reason") != PAUSE:
            if steps != 2:
                raise Broken("an agent that is not paused goes on by heartbeat", f"{mark} of {agent_id}: {steps} steps")
        elif steps != 1 or asked != 1:
            raise Broken("a paused agent answers with one step", f"{mark}: {steps} steps, asked {asked} times")
        elif rest is not None and rest.boot == self.machine.boots and began_s > rest.over_s:
            late = began_s - rest.over_s
            raise Broken(
                "a pause never lasts longer than was asked", f"{mark} of {agent_id}: {rest}, {late:.0f} s late"
            )

    def check(self) -> None:
        super().check()
        for (value,) in self.machine.disk.query("SELECT value FROM blocks WHERE label = 'human'"):
            if "never" in value:
                raise Broken("calls after a pause are not made", f"a block holds {value!r}")


RESTS = scenario(
    "pauses-and-clocks",
    PausingAgents,
    faults=(
        Aim(Fault.clock_jump, "clock.now", rate=0.03),
        Aim(Fault.clock_skew, "clock.boot", rate=0.5),
        Aim(Fault.storage_write_fail, "journal.step", rate=0.05),
        Aim(Fault.storage_write_fail, "journal.step.told", rate=0.05),
        Aim(Fault.crash_before_write, "journal.step", rate=0.03, times_max=1),
        Aim(Fault.crash_after_write, "journal.step", rate=0.03, times_max=1),
    ),
    swarm=(Fault.storage_latency, Fault.storage_read_fail, Fault.cpu_starvation),
)
