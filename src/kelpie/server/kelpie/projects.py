"""Projects: records and the agents that belong to them (Kelpie)."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from kelpie.agent.resources.projects import ItemResult, ProjectDetails
from kelpie.core.agents.agent import AgentQuery, Include
from kelpie.core.agents.projects import (
    ADDED_MAX,
    DESCRIPTION_CHARS_MAX,
    NAME_CHARS_MAX,
    OWNER_CHARS_MAX,
    Project,
    ProjectQuery,
)
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId
from kelpie.server.http.errors import answer
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.limits.request_limits import Tags
from kelpie.server.http.paging import Page50
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp
from kelpie.server.letta.agents.routes import shapes

router = resource("/projects", "projects (Kelpie)")

ProjectPath = Annotated[str, Path(max_length=100, description="The id of a project.")]
Text = Annotated[str | None, Query(max_length=OWNER_CHARS_MAX)]
SOME_FAILED = 207


class CreateProject(BaseModel):
    """A project to create."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(min_length=1, max_length=NAME_CHARS_MAX)
    description: str | None = Field(None, max_length=DESCRIPTION_CHARS_MAX)
    tags: Tags = Field(default_factory=list[str])
    owner: str | None = Field(None, max_length=OWNER_CHARS_MAX, description="Defaults to the user of the caller.")


class UpdateProject(BaseModel):
    """Changes of a project."""

    model_config = ConfigDict(extra="ignore")

    name: str | None = Field(None, min_length=1, max_length=NAME_CHARS_MAX)
    description: str | None = Field(None, max_length=DESCRIPTION_CHARS_MAX)
    tags: Tags | None = None
    owner: str | None = Field(None, min_length=1, max_length=OWNER_CHARS_MAX)


class AddAgents(BaseModel):
    """Agents to add: one as `agent_id`, or several as `agent_ids`."""

    model_config = ConfigDict(extra="ignore")

    agent_id: str | None = None
    agent_ids: Annotated[list[str], Field(max_length=ADDED_MAX, fail_fast=True)] = Field(default_factory=list[str])


@router.post("", summary="Create a project (Kelpie)", response_model=None)
@router.post("/", include_in_schema=False, response_model=None)
async def create_project(api: CallerApi, body: CreateProject) -> JsonAnswer:
    made = await api.projects.create(body.name, body.description, body.owner, body.tags)
    return JsonAnswer(project_shape(made))


@router.get("", summary="List projects (Kelpie)", response_model=None)
@router.get("/", include_in_schema=False, response_model=None)
async def list_projects(
    api: CallerApi, page: Page50, name: Text = None, owner: Text = None, tag: Text = None
) -> JsonAnswer:
    return await listed(await api.projects.page(ProjectQuery(page, name, owner, tag)), project_shape)


@router.get("/{project_id}", summary="Get a project with its agents (Kelpie)", response_model=None)
async def get_project(api: CallerApi, project_id: ProjectPath) -> JsonAnswer:
    return JsonAnswer(details_shape(await api.projects.details(project_id)))


@router.patch("/{project_id}", summary="Update a project (Kelpie)", response_model=None)
async def update_project(api: CallerApi, project_id: ProjectPath, body: UpdateProject) -> JsonAnswer:
    given = body.model_fields_set

    def change(project: Project) -> Project:
        after = replace(
            project,
            name=project.name if body.name is None else body.name,
            owner=project.owner if body.owner is None else body.owner,
            tags=project.tags if body.tags is None else tuple(body.tags),
        )
        return replace(after, description=body.description) if "description" in given else after

    return JsonAnswer(project_shape(await api.projects.update(project_id, change)))


@router.delete("/{project_id}", summary="Delete a project, and its agents if confirmed (Kelpie)", response_model=None)
async def delete_project(
    api: CallerApi,
    project_id: ProjectPath,
    delete_agents: Annotated[bool, Query(description="Also delete the agents of the project.")] = False,
    confirm: Annotated[
        str | None, Query(max_length=NAME_CHARS_MAX, description="The name of the project, with `delete_agents`.")
    ] = None,
) -> JsonAnswer:
    results = await api.projects.delete(project_id, with_agents=delete_agents, confirmed=confirm)
    failed = any(result.error is not None for result in results)
    body = {"success": not failed, "results": [result_shape(result, "deleted") for result in results]}
    return JsonAnswer(body, SOME_FAILED if failed else 200)


@router.get("/{project_id}/agents", summary="List the agents of a project (Kelpie)", response_model=None)
async def list_project_agents(api: CallerApi, project_id: ProjectPath, page: Page50) -> JsonAnswer:
    await api.projects.get(project_id)
    include = Include(tags=True)
    found = await api.agents.page(AgentQuery(page, project_id=project_id, show_hidden=True), include)
    return JsonAnswer(await shapes(api, found, include))


@router.post("/{project_id}/agents", summary="Add agents to a project (Kelpie)", response_model=None)
async def add_project_agents(api: CallerApi, project_id: ProjectPath, body: AddAgents) -> JsonAnswer:
    named = [*([] if body.agent_id is None else [body.agent_id]), *body.agent_ids]
    if not named:
        raise InvalidInput("agent_ids", "give at least one agent")
    results = await api.projects.add(project_id, [AgentId.parse(each) for each in named])
    failed = any(result.error is not None for result in results)
    return JsonAnswer(
        {"results": [result_shape(result, "added") for result in results]}, SOME_FAILED if failed else 200
    )


@router.delete(
    "/{project_id}/agents/{agent_id}", summary="Remove an agent from a project (Kelpie)", response_model=None
)
async def remove_project_agent(api: CallerApi, project_id: ProjectPath, agent_id: AgentPath) -> JsonAnswer:
    await api.projects.remove(project_id, agent_id)
    return JsonAnswer({"success": True})


def project_shape(project: Project) -> dict[str, Any]:
    return {
        "id": project.id,
        "name": project.name,
        "description": project.description,
        "tags": list(project.tags),
        "owner": project.owner,
        "created_at": timestamp(project.created_at),
        "updated_at": timestamp(project.updated_at),
    }


def details_shape(found: ProjectDetails) -> dict[str, Any]:
    agents = [{"id": each.agent_id, "name": each.name, "home": each.home} for each in found.members]
    return project_shape(found.project) | {"agent_count": found.count, "agents": agents}


def result_shape(result: ItemResult, done: str) -> dict[str, Any]:
    shown: dict[str, Any] = {"agent_id": result.agent_id, done: result.changed}
    if result.error is None:
        return shown | {"status": 200}
    return shown | {"status": answer(result.error).status_code, "error": str(result.error)}
