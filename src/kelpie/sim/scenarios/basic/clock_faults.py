"""Clocks that are wrong and jump, and a processor that stalls: durations and order stay right."""

from dataclasses import replace

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.basic.storage_faults import LINES
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

MODEL_S = 20.0
STEPS_MAX = 3  # of the longest script
SPARE_S = 60.0  # for a stalled processor, and for the turn before this one


class ClockFaults(ServerScenario):
    """Each client has an agent, the model is silent now and then, and the power fails in the middle."""

    async def act(self) -> None:
        await self.make_agents(2)
        talking = (self._talk(client, number) for number, client in enumerate(self.clients(2)))
        await together((*talking, self._cut(self.client("operator"))))

    async def _cut(self, operator: ScenarioClient) -> None:
        await operator.pause(4.0)
        await self.machine.restart()  # with another skew

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(4):
            heard = await client.say(self.agents[number], *LINES[(number + turn) % len(LINES)], stream=turn % 2 == 1)
            took_s = (heard.said.returned_s or 0.0) - heard.said.called_s
            if took_s > MODEL_S * STEPS_MAX + SPARE_S:
                raise Broken("a time-out does not look at the wall clock", f"{heard.said.token} took {took_s:.0f} s")


CLOCKS = scenario(
    "clock-jumps",
    ClockFaults,
    faults=(
        Aim(Fault.clock_jump, "clock.now", rate=0.05),
        Aim(Fault.clock_skew, "clock.boot", rate=0.7),
        Aim(Fault.cpu_starvation, "cpu", rate=0.1),
        Aim(Fault.llm_timeout, "llm.reply", rate=0.1),
    ),
    swarm=(Fault.llm_rate_limit, Fault.storage_latency, Fault.network_delay),
    settings=replace(SETTINGS, model_timeout_s=MODEL_S),
)
