"""Two organizations on one server, of which one floods it, while cells, disk and power fail and clients leave.

One organization keeps more jobs waiting than there are slots, embeds and searches without a pause, and sends callbacks
to a receiver that never answers. The other one does a little of each, one thing after the other: its jobs start within
a bounded number of the others' turns, however long those take, and its callbacks come. Afterwards no slot is lost.
"""

import asyncio
import json
from dataclasses import replace
from typing import Any

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import ToolError
from kelpie.sandbox.port import JobEnding, Runner, SandboxJob
from kelpie.sandbox.slots import WAIT_S
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.ports.cells import CellEnvironment
from kelpie.sim.runs.machine import Machine
from kelpie.sim.runs.scenario import Scenario
from kelpie.sim.scenarios.cell_setup import boot_with_cells
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS, RunningKelpie
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

FLOODERS = 12  # clients of the organization that floods, each with one job at a time
ROUNDS = 2
SERVED_S = 45.0  # a few turns of the others, and the faults of one's own call
BELL, TARPIT = "bell.sim", "tarpit.sim"
BUSY = "the sandbox is busy"
LAST_S = 60.0
JOB_S = 400  # at most, by the limit of the tool
LEFT_S = JOB_S + WAIT_S  # after which a job that nobody waits for any more has ended as well
NAP = '''
def nap(who: str) -> str:
    """Works for a while.

    Args:
        who (str): who works
    """
    return who
'''


class Flood(ServerScenario):
    """An organization that floods the server, and its neighbour. Subclasses say how long a job of the first takes."""

    rests = False  # some of its jobs take minutes
    nap_s = (60.0, 300.0)
    slots = 3

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.neighbour = ""  # the agent of the other organization
        self.rung: set[str] = set()
        self.owed: list[str] = []  # runs of the neighbour that were accepted with a callback
        self.over = False
        self._present = 0  # jobs of the last check that run
        self._all_present = asyncio.Event()
        machine.world.code = self._code
        machine.world.internet.host(BELL, self._ring)
        machine.world.internet.host(TARPIT, self._swallow)

    async def _code(self, inside: CellEnvironment) -> str:
        if "last" in inside.arguments:
            self._present += 1
            if self._present == self.slots:
                self._all_present.set()
            await self._all_present.wait()
            return "present"
        neighbour = inside.env.get("LETTA_AGENT_ID") == self.neighbour
        low_s, high_s = (0.1, 1.0) if neighbour else self.nap_s
        await asyncio.sleep(self.machine.loop.rng("naps").uniform(low_s, high_s))
        return "rested"

    async def _ring(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        self.rung.add(json.loads(asked.body)["run_id"])
        await answer.start(204, {})

    async def _swallow(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        await asyncio.sleep(3600.0)

    # --- what is done ----------------------------------------------------------------------------------------------

    async def act(self) -> None:
        owner = self.client("owner")
        await owner.insist("PUT", "/v1/tools/", {"source_code": NAP, "kelpie_sandbox": {"timeout_s": JOB_S}})
        await self.make_agents(2, types=("letta_v1_agent",), tools=["nap"])
        guest = await self._moves_in(owner)
        await together(
            (
                self._lives(guest),
                *(self._floods(client, number) for number, client in enumerate(self.clients(FLOODERS))),
                *(self._cancels(self.client(f"canceller-{agent_id}"), agent_id) for agent_id in self.agents),
            )
        )

    async def _moves_in(self, owner: ScenarioClient) -> ScenarioClient:
        organization = (await owner.insist("POST", "/v1/admin/orgs/", {"name": "neighbour"}))["id"]
        body = {"name": "guest", "organization_id": organization}
        user_id = (await owner.insist("POST", "/v1/admin/users/", body))["id"]
        client = self.machine.client("guest", {"user_id": user_id})
        guest = ScenarioClient(self.machine, "guest", self.heard, client)
        await guest.insist("PUT", "/v1/tools/", {"source_code": NAP})
        agent = {"name": "neighbour", "agent_type": "letta_v1_agent", "tools": ["nap"]}
        self.neighbour = (await guest.insist("POST", "/v1/agents/", agent))["id"]
        return guest

    async def _floods(self, client: ScenarioClient, number: int) -> None:
        """Keeps a slot, or waits for one, until the neighbour has done everything; leaves now and then."""
        agent_id = self.agents[number % len(self.agents)]
        if number < 6:
            body = {"messages": [{"role": "user", "content": "hello"}], "callback_url": f"http://{TARPIT}/done"}
            await client.ask("POST", f"/v1/agents/{agent_id}/messages/async", body)
        while not self.over:
            if number % 6 == 5:
                await client.ask("POST", f"/v1/agents/{agent_id}/archival-memory", {"text": "a text " * 50})
                await client.ask("GET", f"/v1/agents/{agent_id}/archival-memory/search?query=text")
            napping = asyncio.ensure_future(self._nap(client, agent_id))
            await asyncio.wait((napping,), timeout=300.0 if client.tosses(0.5) else 20.0)
            napping.cancel()  # its job goes on without it
            await asyncio.gather(napping, return_exceptions=True)
            await client.pause()

    async def _cancels(self, client: ScenarioClient, agent_id: str) -> None:
        """Lets an agent run the tool, and cancels its turn while the job runs or waits."""
        line = 'call nap {"who": "agent"}'
        while not self.over:
            body = {"messages": [{"role": "user", "content": f"{self.machine.history.token()}\n{line}"}]}
            await client.ask("POST", f"/v1/agents/{agent_id}/messages/async", body)
            await client.pause(20.0)
            await client.ask("POST", f"/v1/agents/{agent_id}/messages/cancel", {})
            await client.pause(2.0)

    async def _nap(self, client: ScenarioClient, agent_id: str) -> None:
        await client.ask("POST", f"/v1/agents/{agent_id}/tools/nap/run", {"args": {"who": client.name}})

    async def _lives(self, guest: ScenarioClient) -> None:
        try:
            await guest.pause(10.0)
            for _ in range(ROUNDS):
                await self._works(guest)
                await self._remembers(guest)
                body = {"messages": [{"role": "user", "content": "hello"}], "callback_url": f"http://{BELL}/done"}
                run = await guest.insist("POST", f"/v1/agents/{self.neighbour}/messages/async", body)
                self.owed.append(run["id"])
                if guest.tosses(0.3):
                    self.machine.crash()
        finally:
            self.over = True

    async def _works(self, guest: ScenarioClient) -> None:
        """A job of the neighbour: it starts while the others' go on."""
        await self.machine.up()
        began_s = self.machine.loop.time()
        path = f"/v1/agents/{self.neighbour}/tools/nap/run"
        answer = await guest.ask("POST", path, {"args": {"who": "guest"}})
        took_s = self.machine.loop.time() - began_s
        if answer is not None and BUSY in answer.body.decode():
            raise Broken("a neighbour's job has its turn", f"after {took_s:.1f} s: {answer.body!r}")
        if answer is not None and answer.status == 200 and took_s > SERVED_S:
            raise Broken("a neighbour's job has its turn", f"it took {took_s:.1f} s")

    async def _remembers(self, guest: ScenarioClient) -> None:
        """A text of the neighbour, and the search for it."""
        for method, path, body in (
            ("POST", f"/v1/agents/{self.neighbour}/archival-memory", {"text": "a word"}),
            ("GET", f"/v1/agents/{self.neighbour}/archival-memory/search?query=word", None),
        ):
            await self.machine.up()
            began_s = self.machine.loop.time()
            answer = await guest.ask(method, path, body)
            took_s = self.machine.loop.time() - began_s
            if answer is not None and (answer.status == 429 or took_s > SERVED_S):
                raise Broken("a neighbour's search has its turn", f"{method} {path}: {answer.status} {took_s:.1f} s")

    # --- what is there at the end ----------------------------------------------------------------------------------

    async def settle(self) -> None:
        await super().settle()
        running = self.machine.running
        assert isinstance(running, RunningKelpie) and running.kelpie.runtime.sandbox is not None
        await self._every_job_ends(running.kelpie.runtime.sandbox)
        await self._no_slot_is_lost(running.kelpie.runtime.sandbox)
        for run_id in self.owed:
            if run_id not in self.rung:
                raise Broken("a neighbour's callback comes", f"{run_id} was not told")

    async def _every_job_ends(self, sandbox: Any) -> None:
        """Jobs whose clients have left come to their own end, or to their limit."""
        for _ in range(int(LEFT_S)):
            if not _left_of(sandbox):
                return
            await asyncio.sleep(1.0)
        raise Broken("every job ends", str(sandbox.counts()))

    async def _no_slot_is_lost(self, sandbox: Any) -> None:
        """As many jobs as there are slots, each of another organization, run at once; then nothing runs or waits."""
        request = json.dumps({"source": "", "function": "last", "arguments": {"last": True}}).encode()
        jobs = [SandboxJob(Runner.python, request, consumer=Consumer(f"org {at}")) for at in range(self.slots)]
        try:
            async with asyncio.timeout(LAST_S):
                ended = await asyncio.gather(*(sandbox.run(each) for each in jobs))
        except (TimeoutError, ToolError) as error:
            raise Broken("no slot is lost", f"{sandbox.counts()}: {type(error).__name__} {error}") from None
        if any(one.how is not JobEnding.finished for one in ended):  # one waited for the end of another
            raise Broken("no slot is lost", f"{sandbox.counts()}: {[one.how for one in ended]}")
        await asyncio.sleep(1.0)
        if _left_of(sandbox):
            raise Broken("nothing of a job is left", str(sandbox.counts()))


def _left_of(sandbox: Any) -> bool:
    return any(sandbox.counts()[name] for name in ("running", "ending", "waiting", "starting"))


class OneSlot(Flood):
    """There is one slot, so nothing can be kept free: each waits for one turn of the other."""

    nap_s = (3.0, 10.0)
    slots = 1


def _scenario(name: str, played: type[Flood]) -> Scenario:
    made = scenario(
        name,
        played,
        faults=(
            Aim(Fault.process_crash, "cells.before", rate=0.1),
            Aim(Fault.process_crash, "cells.after", rate=0.15),
            Aim(Fault.out_of_memory, "cells.run", rate=0.15),
            Aim(Fault.process_resource_exhaustion, "cells.start", rate=0.1),
        ),
        swarm=(Fault.vanishing_client, Fault.storage_latency, Fault.network_delay, Fault.crash_after_write),
        settings=replace(
            SETTINGS,
            sandbox_cells_max=played.slots,
            sandbox_warm_max=1,
            provider_limits=("openai: calls=2",),
        ),
        quiet_s=120.0,
    )
    return replace(made, boot=boot_with_cells)


FLOODED = _scenario("one-organization-floods", Flood)
FLOODED_SLOT = _scenario("one-slot-for-two-organizations", OneSlot)
