"""A model that does not answer, refuses, or sends invalid replies, over a network that loses, delays and reorders."""

from dataclasses import replace

from kelpie.sim.checks.client_history import Fate
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.basic.storage_faults import LINES
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.fixtures.server_scenario import ServerScenario, scenario, together

PATIENCE = replace(SETTINGS, model_timeout_s=30.0)
PLACE = "network.provider"


class ModelFaults(ServerScenario):
    """Three clients, some streaming, some not. A first step that failed leaves nothing in the history."""

    async def act(self) -> None:
        await self.make_agents(2)
        await together(self._talk(client, number) for number, client in enumerate(self.clients(3)))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(2):
            await client.pause()
            lines = LINES[(number + turn) % len(LINES)]
            await client.say(self.agents[number % 2], *lines, stream=client.tosses(0.7), tokens=client.tosses(0.9))

    def check(self) -> None:
        super().check()
        for each in self.heard:
            if each.said.fate is Fate.failed and not each.trouble:
                raise Broken("a failure is told with its cause", each.said.token)


LLM_FAULTS = scenario(
    "llm-faults",
    ModelFaults,
    faults=(
        Aim(Fault.llm_timeout, "llm.reply", rate=0.04),
        Aim(Fault.llm_timeout, "llm.stream", rate=0.06),
        Aim(Fault.llm_rate_limit, "llm.with_retry_after", rate=0.1),
        Aim(Fault.llm_rate_limit, "llm.without_retry_after", rate=0.1),
        Aim(Fault.llm_malformed, "llm.body", rate=0.06),
        Aim(Fault.llm_malformed, "llm.content_type", rate=0.06),
        Aim(Fault.llm_malformed, "llm.status", rate=0.06),
        Aim(Fault.llm_malformed, "llm.choices", rate=0.06),
        Aim(Fault.llm_malformed, "llm.arguments", rate=0.15),
        Aim(Fault.llm_malformed, "llm.cut", rate=0.2),
    ),
    swarm=(Fault.storage_latency, Fault.crash_after_write, Fault.clock_jump),
    settings=PATIENCE,
)

NETWORK = scenario(
    "network-to-the-model",
    ModelFaults,
    faults=(
        Aim(Fault.network_packet_loss, PLACE, rate=0.03),
        Aim(Fault.network_delay, PLACE, rate=0.05),
        Aim(Fault.network_partition, PLACE, rate=0.02),
        Aim(Fault.network_message_reorder, PLACE, rate=0.05),
    ),
    swarm=(Fault.llm_rate_limit, Fault.cpu_starvation, Fault.storage_write_fail, Fault.crash_before_write),
    settings=PATIENCE,
)
