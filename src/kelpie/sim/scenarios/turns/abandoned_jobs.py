"""Turns that are abandoned: an agent is unloaded after a failed commit while a tool of another conversation runs on,
the agent is loaded again and works on, and then the tool returns.

The abandoned turn can commit nothing any more. Its call has one result, which says that it was interrupted, and its
effect happened at most once.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kelpie.core.settings.settings import Settings
from kelpie.core.tools.tools import Tool
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.external_service import ExternalServiceTool
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS, RunningKelpie, boot
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together
from kelpie.tools.calls.interface import CallContext, Outcome
from kelpie.world.world import World

LASTS_S = 30.0  # far longer than an agent that is unloaded waits
DRAIN_S = 1.0
ROUNDS = 3
TURNS = 6
PAUSES_S = (10.0, 10.0, 3 * LASTS_S)  # in a long one the tool returns before the agent is loaded again


class StubbornTool:
    """The external service, after a long time in which a cancellation is ignored."""

    def __init__(self, world: World) -> None:
        self._tool = ExternalServiceTool(world)

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Raises ToolError when the service does not answer."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LASTS_S
        while (left_s := until_s - loop.time()) > 0:
            try:
                await asyncio.sleep(left_s)
            except asyncio.CancelledError:
                continue
        return await self._tool(tool, call, arguments)


async def boot_with_stubborn_tool(world: World, settings: Settings) -> RunningKelpie:
    return await boot(world, settings, StubbornTool(world))


class AbandonedJobs(ServerScenario):
    """One client calls the tool, the other's commits fail."""

    async def act(self) -> None:
        await self.register_outside()
        (agent_id,) = await self.make_agents(1, types=("letta_v1_agent",), tools=("outside",))
        caller, talker = self.clients(2)
        path = f"/v1/conversations/?agent_id={agent_id}"
        lane = (await caller.insist("POST", path, {"isolated_block_labels": []}))["id"]
        await together((self._call(caller, agent_id, lane), self._talk(talker, agent_id)))
        await asyncio.sleep(LASTS_S)

    async def _call(self, client: ScenarioClient, agent_id: str, lane: str) -> None:
        for _ in range(ROUNDS):
            await client.say(agent_id, 'call outside {"mark": "{token}"}', conversation=lane)
            await client.pause(2 * LASTS_S)

    async def _talk(self, client: ScenarioClient, agent_id: str) -> None:
        for _ in range(TURNS):
            await client.pause(client.picks(PAUSES_S))
            await client.say(agent_id, "remember {token} likes tea", stream=client.tosses(0.5))

    def check(self) -> None:
        super().check()
        failed = self.machine.faults.fired(Fault.storage_write_fail, "journal.step")
        if failed and len(self.machine.disk.claims) < 2:
            raise Broken("an agent whose commit failed is loaded again", f"{self.machine.disk.claims}")


ABANDONED = replace(
    scenario(
        "abandoned-jobs",
        AbandonedJobs,
        faults=(
            Aim(Fault.storage_write_fail, "journal.step", rate=0.3),
            Aim(Fault.storage_latency, "database.write", rate=0.1),
        ),
        swarm=(Fault.storage_read_fail, Fault.cpu_starvation, Fault.llm_rate_limit, Fault.network_delay),
        settings=replace(SETTINGS, drain_s=DRAIN_S),
        quiet_s=120.0,
    ),
    boot=boot_with_stubborn_tool,
)
