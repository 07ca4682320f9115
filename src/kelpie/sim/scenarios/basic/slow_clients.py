"""Clients that read slowly or disconnect in the middle: their own connection suffers and nothing else."""

from kelpie.sim.checks.client_history import Fate
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.basic.storage_faults import LINES
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

PLACE = "network.client"


class SlowClients(ServerScenario):
    """Clients that stream tokens over bad connections. Nothing else fails, so every turn that began must complete."""

    async def act(self) -> None:
        await self.make_agents(2)
        await together(self._talk(client, number) for number, client in enumerate(self.clients(4)))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(2):
            await client.pause()
            lines = LINES[(number + turn) % len(LINES)]
            await client.say(self.agents[number % 2], *lines, stream=client.tosses(0.8), tokens=client.tosses(0.7))

    def check(self) -> None:
        super().check()
        for run_id, status, reason in self.machine.disk.query("SELECT id, status, stop_reason FROM runs"):
            if status != "completed":
                raise Broken("a turn goes on without its client", f"{run_id} is {status} because of {reason}")
        for each in self.heard:
            if each.said.fate is Fate.failed:
                raise Broken("a bad line fails no turn", f"{each.said.token}: {each.status} {each.trouble}")
            if each.streamed and each.status == 200 and not self._is_in(each.said.token):
                raise Broken("a turn goes on without its client", f"{each.said.token} began and is not in the history")

    def _is_in(self, token: str) -> bool:
        found = self.machine.disk.query(
            "SELECT count(*) FROM messages WHERE role = 'user' AND content LIKE ?", f"%{token}%"
        )
        return found[0][0] == 1


CLIENTS = scenario(
    "clients-slow-or-vanishing",
    SlowClients,
    faults=(
        Aim(Fault.slow_client, "client.read", rate=0.2),
        Aim(Fault.vanishing_client, "client.request", rate=0.1),
        Aim(Fault.vanishing_client, "client.stream", rate=0.05),
        Aim(Fault.network_packet_loss, PLACE, rate=0.01),
        Aim(Fault.network_delay, PLACE, rate=0.05),
        Aim(Fault.network_partition, PLACE, rate=0.01),
        Aim(Fault.network_message_reorder, PLACE, rate=0.03),
    ),
    swarm=(Fault.cpu_starvation, Fault.storage_latency),
)
