"""Many messages to one agent, and messages to many agents: bounds are reached, and nothing is lost."""

import asyncio
from dataclasses import replace

from kelpie.sim.checks.client_history import Fate
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.fixtures.clients import ClientAnswer, ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

MAILBOX = 3
CROWD = 7
HOT_MAX = 2
AGENTS = 5
TRIES_MAX = 60
STEP_S = 0.05


class OneAgent(ServerScenario):
    """Many clients write to one agent in a fixed order; a client that finds the mailbox full waits as long as the
    answer says.
    """

    async def act(self) -> None:
        (agent_id,) = await self.make_agents(1)
        crowd = self.clients(CROWD)
        first: list[ClientAnswer] = []
        await together(self._call(first, client, agent_id, number) for number, client in enumerate(crowd))
        if not any(each.status == 429 for each in first):
            raise Broken("the mailbox is bounded", f"{CROWD} messages at once, and none was refused")
        self._first_come_first_served(first)

    async def _call(self, first: list[ClientAnswer], client: ScenarioClient, agent_id: str, number: int) -> None:
        await asyncio.sleep(number * STEP_S / CROWD)
        heard = await client.say(agent_id, "remember {token} was here")
        first.append(heard)
        for _ in range(TRIES_MAX):
            if heard.acknowledged:
                return
            if heard.status == 429:
                await asyncio.sleep(int(heard.headers["retry-after"]))
            heard = await client.say(agent_id, "remember {token} came again")
        raise Broken("a full mailbox empties", f"{client.name} was refused {TRIES_MAX} times")

    def _first_come_first_served(self, first: list[ClientAnswer]) -> None:
        """Messages that were accepted at once are answered in the order in which they came."""
        served = [each.said for each in first if each.said.fate is Fate.acknowledged]
        served.sort(key=lambda said: said.called_s)
        answered = [said.returned_s or 0.0 for said in served]
        if answered != sorted(answered):
            raise Broken("first come, first served", f"called in the order of {[said.token for said in served]}")


class ManyAgents(ServerScenario):
    """More agents than may be loaded, in number or in bytes: each is unloaded for another one and loaded again while
    messages come."""

    async def act(self) -> None:
        await self.make_agents(AGENTS, types=self.all_types)
        await together(self._talk(client, number) for number, client in enumerate(self.clients(3)))

    def check(self) -> None:
        super().check()
        claims = self.machine.disk.query("SELECT sum(epoch) FROM agent_head")[0][0]
        if claims <= AGENTS:
            raise Broken("agents are put away and loaded again", f"{AGENTS} agents were loaded {claims} times")

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(2):
            await client.pause(2.0)
            await self._until_answered(client, self.agents[(number * 2 + turn * 3) % AGENTS])

    async def _until_answered(self, client: ScenarioClient, agent_id: str) -> None:
        for _ in range(TRIES_MAX):
            heard = await client.say(agent_id, "remember {token} visited")
            if heard.acknowledged:
                return
            await asyncio.sleep(int(heard.headers.get("retry-after", "1")))
        raise Broken("an overloaded server recovers", f"{client.name} was refused {TRIES_MAX} times")


ONE_AGENT = scenario(
    "many-messages-one-agent",
    OneAgent,
    faults=(Aim(Fault.storage_latency, "database.write", rate=0.1),),
    settings=replace(SETTINGS, mailbox_size=MAILBOX),
)

MANY_AGENTS = scenario(
    "many-agents",
    ManyAgents,
    faults=(
        Aim(Fault.storage_latency, "database.read", rate=0.1),
        Aim(Fault.storage_read_fail, "database.read", rate=0.05),
    ),
    swarm=(Fault.storage_write_fail, Fault.crash_after_write, Fault.llm_rate_limit, Fault.cpu_starvation),
    settings=replace(SETTINGS, hot_agents_max=HOT_MAX, idle_s=3.0),
)

LARGE_AGENTS = scenario(
    "large-agents",
    ManyAgents,
    faults=(
        Aim(Fault.storage_latency, "database.read", rate=0.1),
        Aim(Fault.storage_read_fail, "database.read", rate=0.05),
    ),
    swarm=(Fault.storage_write_fail, Fault.crash_after_write, Fault.llm_rate_limit, Fault.cpu_starvation),
    settings=replace(SETTINGS, hot_bytes_max=1, idle_s=600.0),
)
