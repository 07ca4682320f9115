"""Projects API: create, change, list and delete projects, and the agents that belong to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.resources.agents import Agents
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.projects import PROJECTS_MAX, Project, ProjectMember, ProjectQuery, check_project
from kelpie.core.errors import Conflict, InvalidInput, KelpieError, NotFound
from kelpie.core.ids import AgentId, ProjectId
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.agents import projects
from kelpie.world.database import Tx
from kelpie.world.world import World

SHOWN_MAX = 100  # agents in the details of a project


@dataclass(frozen=True, slots=True)
class ProjectDetails:
    """A project with its agents, the first `SHOWN_MAX` of them."""

    project: Project
    members: tuple[ProjectMember, ...]
    count: int


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What became of one agent of a request. `error` is None if it worked."""

    agent_id: AgentId
    changed: bool
    error: KelpieError | None = None


class Projects:
    """Projects of the caller's organization."""

    def __init__(self, world: World, agents: Agents, live_agents: LiveAgents, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._agents = agents
        self._live_agents = live_agents
        self._caller = caller
        self._organization = caller.organization_id

    async def create(self, name: str, description: str | None, owner: str | None, tags: Sequence[str]) -> Project:
        """Raises InvalidInput, and Conflict for a name that is taken or for too many projects."""
        now = self._world.clock.now()
        check_project(name, tuple(tags))
        project = Project(
            self._world.ids.new(ProjectId),
            self._organization,
            name,
            description,
            owner or self._caller.user_id,
            tuple(sorted(set(tags))),
            now,
            now,
        )

        def write(tx: Tx) -> None:
            self._check_name(tx, project)
            if projects.count(tx, self._organization) >= PROJECTS_MAX:
                raise Conflict(f"There are {PROJECTS_MAX} projects, which is the maximum. Delete some first.")
            projects.insert(tx, project)

        await self._world.database.transact(write)
        return project

    async def update(self, project_id: str, change: Callable[[Project], Project]) -> Project:
        """Raises NotFound, InvalidInput, Conflict."""
        now = self._world.clock.now()

        def write(tx: Tx) -> Project:
            changed = change(projects.get(tx, self._organization, project_id, lock=True))
            after = replace(changed, tags=tuple(sorted(set(changed.tags))), updated_at=now)
            check_project(after.name, after.tags)
            self._check_name(tx, after)
            projects.replace(tx, after)
            return after

        return await self._world.database.transact(write)

    async def page(self, query: ProjectQuery) -> list[Project]:
        return await self._world.database.read(lambda tx: projects.page(tx, self._organization, query))

    async def details(self, project_id: str) -> ProjectDetails:
        """Raises NotFound."""

        def read(tx: Tx) -> ProjectDetails:
            project = projects.get(tx, self._organization, project_id)
            members = projects.members(tx, self._organization, project_id)
            return ProjectDetails(project, tuple(members[:SHOWN_MAX]), len(members))

        return await self._world.database.read(read)

    async def get(self, project_id: str) -> Project:
        """Raises NotFound."""
        return await self._world.database.read(lambda tx: projects.get(tx, self._organization, project_id))

    async def add(self, project_id: str, agent_ids: Sequence[AgentId]) -> list[ItemResult]:
        """Adds agents, all that exist; an agent that is in the project stays in it. Raises NotFound for the project."""

        def write(tx: Tx) -> list[ItemResult]:
            project = projects.get(tx, self._organization, project_id, lock=True)
            return [self._added(tx, project, agent_id) for agent_id in dict.fromkeys(agent_ids)]

        return await self._world.database.transact(write)

    async def remove(self, project_id: str, agent_id: AgentId) -> None:
        """Takes an agent out of a project, also if it is its home project. Raises NotFound."""
        now = self._world.clock.now()

        def write(tx: Tx) -> None:
            project = projects.get(tx, self._organization, project_id, lock=True)
            agent = agent_rows.owned(tx, self._organization, agent_id)
            removed = projects.remove(tx, project.id, agent_id)
            if agent.project_id == project.id:
                agent_rows.update_agent(tx, agent_id, {"project_id": None}, now)
            elif not removed:
                raise NotFound("Agent of the project", agent_id)

        await self._world.database.transact(write)
        self._live_agents.reload((agent_id,))

    async def delete(self, project_id: str, *, with_agents: bool, confirmed: str | None) -> list[ItemResult]:
        """Deletes a project; its agents stay, unless they are to be deleted and `confirmed` is the project's name.

        Returns what became of the agents that were to be deleted. If one of them could not be, the project stays.
        Raises NotFound, InvalidInput.
        """
        project = await self.get(project_id)
        if with_agents and confirmed != project.name:
            raise InvalidInput("confirm", "must be the name of the project when its agents are to be deleted")
        results: list[ItemResult] = []
        if with_agents:
            details = await self._world.database.read(lambda tx: projects.members(tx, self._organization, project_id))
            for member in details:
                results.append(await self._deleted(member.agent_id))
        if all(result.error is None for result in results):
            await self._delete_project(project)
        return results

    async def _delete_project(self, project: Project) -> None:
        now = self._world.clock.now()

        def write(tx: Tx) -> tuple[AgentId, ...]:
            projects.get(tx, self._organization, project.id, lock=True)
            members = projects.members(tx, self._organization, project.id)
            homeless = tuple(member.agent_id for member in members if member.home)
            for agent_id in homeless:
                agent_rows.update_agent(tx, agent_id, {"project_id": None}, now)
            projects.delete(tx, project.id)
            return homeless

        self._live_agents.reload(await self._world.database.transact(write))

    async def _deleted(self, agent_id: AgentId) -> ItemResult:
        try:
            await self._agents.delete(agent_id)
        except NotFound:
            return ItemResult(agent_id, changed=False)
        except KelpieError as error:
            return ItemResult(agent_id, changed=False, error=error)
        return ItemResult(agent_id, changed=True)

    def _added(self, tx: Tx, project: Project, agent_id: AgentId) -> ItemResult:
        try:
            row_ownership.agent(tx, self._organization, agent_id)
        except NotFound as error:
            return ItemResult(agent_id, changed=False, error=error)
        return ItemResult(agent_id, projects.add(tx, project.id, agent_id))

    def _check_name(self, tx: Tx, project: Project) -> None:
        taken = projects.find_by_name(tx, self._organization, project.name)
        if taken is not None and taken != project.id:
            raise Conflict(f"There is already a project named '{project.name}'; choose another name.")
