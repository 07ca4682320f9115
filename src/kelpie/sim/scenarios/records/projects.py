"""Projects that several clients create, fill, empty and delete at once, while writes fail and the power goes.

An association never outlives its project or its agent, no agent names a deleted project as its home, and what a client
was told to be in a project is in it.
"""

from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

ROUNDS = 10
NAMES = ("garden", "park", "wood")


class ProjectRecords(ServerScenario):
    """Three clients share a few names; one more talks to the agents."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.sure: set[tuple[str, str]] = set()  # (project, agent) that one client added last and nobody removed
        self.deleting: set[str] = set()  # projects that somebody asked to delete
        self.homes: set[str] = set()  # projects that may have become a home after that

    async def act(self) -> None:
        await self.make_agents(3)
        workers = (self._work(self.client(f"worker-{number}")) for number in range(3))
        await together((*workers, self._keep(self.client("keeper")), self._talk(self.client("talker"))))

    async def _talk(self, client: ScenarioClient) -> None:
        for agent_id in self.agents:
            await client.pause(2.0)
            await client.say(agent_id)

    async def _keep(self, client: ScenarioClient) -> None:
        """A project of its own, which nobody else touches."""
        while not (known := await client.insist("GET", "/v1/projects?name=kept")):  # one whose answer was lost is there
            await client.ask("POST", "/v1/projects", {"name": "kept", "tags": ["mine"]})
        project = known[0]["id"]
        for agent_id in self.agents:
            await client.pause(2.0)
            await client.insist("POST", f"/v1/projects/{project}/agents", {"agent_id": agent_id})
            self.sure.add((project, agent_id))

    async def _work(self, client: ScenarioClient) -> None:
        for _ in range(ROUNDS):
            await client.pause(1.0)
            project = await self._some(client)
            agent_id = client.picks(self.agents)
            if project is None or client.tosses(0.25):
                told = await client.ask("POST", "/v1/projects", {"name": client.picks(NAMES), "tags": ["shared"]})
            elif client.tosses(0.4):
                told = await client.ask("POST", f"/v1/projects/{project}/agents", {"agent_id": agent_id})
            elif client.tosses(0.3):
                told = await client.ask("PATCH", f"/v1/agents/{agent_id}", {"project_id": project})
                if told is None or project in self.deleting:  # any text may be a home, also after the deletion
                    self.homes.add(project)
            elif client.tosses(0.5):
                told = await client.ask("DELETE", f"/v1/projects/{project}/agents/{agent_id}")
            else:
                self.deleting.add(project)
                told = await client.ask("DELETE", f"/v1/projects/{project}")
            if told is not None and told.status not in (200, 404, 409, 503):
                raise Broken("a request about projects is answered", f"{told.status} {told.body!r}")

    async def _some(self, client: ScenarioClient) -> str | None:
        told = await client.ask("GET", "/v1/projects?tag=shared")
        found: list[dict[str, Any]] = told.json() if told is not None and told.status == 200 else []
        return client.picks(found)["id"] if found else None

    def check(self) -> None:
        super().check()
        query = self.machine.disk.query
        projects = {project for (project,) in query("SELECT id FROM projects")}
        rows = set(query("SELECT project_id, agent_id FROM project_agents"))
        if lost := self.sure - rows:
            raise Broken("an agent that was added is in the project", f"{sorted(lost)}")
        if stray := {project for project, _ in rows} - projects:
            raise Broken("an association goes with its project", f"{sorted(stray)}")
        homes = {home for (home,) in query("SELECT project_id FROM agents WHERE project_id IS NOT NULL")}
        if kept := homes - projects - self.homes:
            raise Broken("no agent has a deleted project as its home", f"{sorted(kept)}")
        names = [name for (name,) in query("SELECT name FROM projects")]
        if len(names) != len(set(names)):
            raise Broken("names of projects are unique", f"{names}")


PROJECTS = scenario(
    "projects",
    ProjectRecords,
    faults=(Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=2),),
    plots=(
        (
            Aim(Fault.storage_write_fail, "database.commit", rate=0.05),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.04),
        ),
        (Aim(Fault.crash_before_write, "database.begin", rate=0.02, times_max=2),),
        (Aim(Fault.network_packet_loss, "network.client", rate=0.05),),
    ),
    swarm=(Fault.storage_latency, Fault.storage_busy, Fault.cpu_starvation, Fault.storage_read_fail),
)
