"""Two servers on one disk, both running and both sure that they own it: the fence decides, commit by commit.

In production a lock file keeps a second server off the data directory; here it is let in, because the fence exists for
a server that was thought dead and comes back.
"""

import asyncio

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.loop.node import Node
from kelpie.sim.network.http_client import SimClient
from kelpie.sim.network.http_server import Server
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS, boot
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

TRIES_MAX = 30
BOOT_TRIES_MAX = 20


async def second_server(machine: Machine) -> Server:
    """Boots another server on the same disk."""
    for _ in range(BOOT_TRIES_MAX):
        node: Node = machine.world.node("rival")
        adapters = node.context().run(machine.world.adapters, node)
        booting = machine.loop.create_task(boot(adapters, SETTINGS), name="boot", context=node.context())
        await asyncio.wait((booting,))
        if booting.exception() is None:
            return Server(machine.world.network, node, booting.result().asgi)
        node.crash()
    raise Broken("the node comes up", "the rival could not be booted")


class TwoServers(ServerScenario):
    """Both servers get messages for the same agents at the same time."""

    alone = False

    async def act(self) -> None:
        await self.make_agents(2)
        rival = await second_server(self.machine)
        there = [
            ScenarioClient(
                self.machine, f"rival-{n}", self.heard, SimClient(f"rival-{n}", lambda: rival, self.machine.faults)
            )
            for n in range(2)
        ]
        here = self.clients(2)
        await together(self._talk(client, number) for number, client in enumerate((*here, *there)))
        rival.node.crash()

    async def settle(self) -> None:
        visitor = self.client("first-visitor")
        for agent_id in self.agents:  # what the rival took away is noticed at the next commit, and taken back after it
            await visitor.say(agent_id)
        await super().settle()

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        """Sends a message until it is acknowledged; a client of the fenced server may try again."""
        for _ in range(TRIES_MAX):
            await client.pause(2.0)
            heard = await client.say(self.agents[number % 2], "remember {token} was heard")
            if heard.acknowledged:
                return


RIVALS = scenario(
    "two-servers-one-disk",
    TwoServers,
    faults=(
        Aim(Fault.storage_latency, "database.write", rate=0.1),
        Aim(Fault.storage_latency, "database.read", rate=0.1),
    ),
    swarm=(Fault.network_delay, Fault.cpu_starvation),
)
