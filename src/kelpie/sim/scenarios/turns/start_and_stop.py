"""Agents that are stopped, started and restarted while clients talk to them. A stopped agent answers 409 and stays
stopped through a crash; one that was started again lacks nothing.
"""

from dataclasses import dataclass

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

ROUNDS = 2


@dataclass(slots=True)
class StopPeriod:
    """The time in which an agent was stopped: from the acknowledgement until a client asked to start it."""

    agent_id: str
    since_s: float
    until_s: float = float("inf")


class StartedAndStoppedAgents(ServerScenario):
    async def act(self) -> None:
        self.rests: list[StopPeriod] = []
        await self.make_agents(2)
        operators = [self.client(f"operator-{number}") for number in range(2)]
        operating = (self._operate(one, agent_id) for one, agent_id in zip(operators, self.agents, strict=True))
        talking = (self._talk(client, number) for number, client in enumerate(self.clients(2)))
        await together((*operating, *talking))
        await self.machine.restart()
        for operator, agent_id in zip(operators, self.agents, strict=True):
            await operator.say(agent_id)

    async def _operate(self, operator: ScenarioClient, agent_id: str) -> None:
        for number in range(ROUNDS):
            await operator.pause(2.0)
            await operator.insist("POST", f"/v1/agents/{agent_id}/stop")
            rest = StopPeriod(agent_id, self.machine.loop.time())
            self.rests.append(rest)
            await operator.say(agent_id)
            if operator.tosses(0.3):
                self.machine.crash()
            await operator.say(agent_id, stream=True)
            await operator.pause(2.0)
            if number == ROUNDS - 1 and operator.tosses(0.5):
                return  # it stays stopped
            rest.until_s = self.machine.loop.time()
            await operator.insist("POST", f"/v1/agents/{agent_id}/{'restart' if operator.tosses(0.3) else 'start'}")
            await operator.say(agent_id, "remember {token} works again")
            if operator.tosses(0.5):
                await operator.insist("POST", f"/v1/agents/{agent_id}/restart")

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(3):
            await client.pause(1.5)
            await client.say(self.agents[(number + turn) % 2], "remember {token} came by", stream=client.tosses(0.3))

    async def settle(self) -> None:
        self._rest_is_kept()
        operator = self.client("operator-of-all")
        for rest in self.rests:
            if rest.until_s == float("inf"):
                await self._answers_409(operator, rest.agent_id)
                rest.until_s = self.machine.loop.time()
                await operator.insist("POST", f"/v1/agents/{rest.agent_id}/start")
        await super().settle()

    async def _answers_409(self, operator: ScenarioClient, agent_id: str) -> None:
        heard = await operator.say(agent_id)
        if heard.status != 409:
            raise Broken("a stopped agent answers 409", f"{agent_id} answered {heard.status}")

    def _rest_is_kept(self) -> None:
        for rest in self.rests:
            for heard in self.heard:
                said = heard.said
                within = rest.since_s <= said.called_s and (said.returned_s or float("inf")) <= rest.until_s
                if said.agent_id != rest.agent_id or not within:
                    continue
                if heard.status not in (409, None, 503):
                    told = f"{said.token} to {said.agent_id} was answered {heard.status}"
                    raise Broken("a stopped agent answers 409", told)
                if self.machine.disk.query("SELECT 1 FROM runs WHERE input LIKE ?", f"%{said.token}%"):
                    raise Broken("a stopped agent begins no turn", f"{said.token} has a run of {said.agent_id}")


LIFECYCLE = scenario(
    "stop-start-restart",
    StartedAndStoppedAgents,
    faults=(
        Aim(Fault.storage_write_fail, "database.commit", rate=0.03),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.03),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=1),
        Aim(Fault.storage_latency, "database.write", rate=0.05),
    ),
    swarm=(Fault.storage_read_fail, Fault.llm_timeout, Fault.cpu_starvation, Fault.network_delay),
)
