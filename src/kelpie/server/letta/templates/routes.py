"""The templates resource: create, list, read, change, save, roll back and delete templates, and make agents from them.

`create_agent` is here as well, because a new agent may be made from a template.
"""

from functools import cache
from typing import Annotated, Any

import orjson
from fastapi import Header, Path
from starlette.responses import Response

from kelpie.agent.templates.templates import Deployed, Draft, NewDeployment
from kelpie.core.agents.agent import AgentView, Include
from kelpie.core.agents.templates import (
    DEFAULT_PROJECT,
    NAME_CHARS_MAX,
    UNSAVED,
    VersionName,
    check_project,
    without_project,
)
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId
from kelpie.server.http.json_answer import JsonAnswer, built
from kelpie.server.http.paging import After, Before, Order, limit_query, page_of
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.agent_files.file_writer import LettaFileWriter
from kelpie.server.letta.agents.body import CreateAgent, new_agent
from kelpie.server.letta.agents.routes import shape
from kelpie.server.letta.agents.shape import Facts
from kelpie.server.letta.templates.body import (
    AGENT_FILE,
    AGENT_FILE_JSON,
    CreateTemplate,
    CreateTemplateAgents,
    RollBackTemplate,
    SaveTemplate,
    UpdateTemplate,
    agent_deployment,
    new_deployment,
)
from kelpie.server.letta.templates.document import read_document, template_document
from kelpie.server.letta.templates.shape import deployed_shape, noted, template_shape, version_shape

router = resource("/templates", "templates")
agent_router = resource("/agents", "agents")

LIST_MAX = 1_000

TemplatePath = Annotated[
    str, Path(max_length=2 * NAME_CHARS_MAX, description="The name of a template.", examples=["support"])
]
VersionPath = Annotated[
    str,
    Path(
        max_length=2 * NAME_CHARS_MAX,
        description="A version of a template: `name`, `name:3`, `name:latest` or `name:current`.",
        examples=["support:latest"],
    ),
]
ProjectId = Annotated[str | None, Header(alias="X-Project-Id", description="The project that new agents belong to.")]
Project = Annotated[
    str | None, Header(alias="X-Project", description=f"The project; `{DEFAULT_PROJECT}` is the only one.")
]


@router.get("", summary="List templates (Kelpie)", response_model=None)
@router.get("/", include_in_schema=False, response_model=None)
async def list_templates(
    api: CallerApi,
    before: Before = None,
    after: After = None,
    limit: int = limit_query(50, LIST_MAX),
    order: Order = "desc",
    project: Project = None,
) -> JsonAnswer:
    check_project(project or DEFAULT_PROJECT)
    found, more = await api.templates.page(page_of(before, after, limit or LIST_MAX, order))
    return JsonAnswer({"templates": await built(found, template_shape), "has_next_page": more})


@router.post("", summary="Create a template from an agent or an agent file", response_model=None)
@router.post("/", include_in_schema=False, response_model=None)
async def create_template(
    api: CallerApi, body: CreateTemplate, project_id: ProjectId = None, project: Project = None
) -> JsonAnswer:
    check_project(project or DEFAULT_PROJECT)
    made = await api.templates.create(body.name, await _draft(api, body))
    return JsonAnswer({**template_shape(made.template, project_id), **noted(made.notes)})


async def _draft(api: CallerApi, body: CreateTemplate) -> Draft:
    """The document of a new template. Raises InvalidInput, NotFound."""
    if body.type == "agent":
        if body.agent_id is None:
            raise InvalidInput("agent_id", "is missing; name the agent that the template is made from")
        view, pieces = await _exported(api, AgentId.parse(body.agent_id))
        document, file = template_document(b"".join(pieces), "agent_id")
        return Draft(document, file, "agent_id", view.agent.description)
    if body.agent_file is None:
        raise InvalidInput(AGENT_FILE, "is missing; send the agent file that the template is made from")
    document, file = template_document(orjson.dumps(body.agent_file), AGENT_FILE)
    return Draft(document, file, AGENT_FILE, file.agents[0].new.description, body.update_existing_tools)


async def _exported(api: CallerApi, agent_id: AgentId) -> tuple[AgentView, list[bytes]]:
    embeddings = {info.handle: info for info in await api.models.embeddings()}
    facts = Facts(cache(api.models.known), embeddings)
    view = await api.agents.get(agent_id, Include())
    pieces = await api.agent_file_exports.write(agent_id, lambda: LettaFileWriter(facts), scrub_messages=True)
    return view, pieces


@router.get("/{template_name}", summary="Get a template and its versions (Kelpie)", response_model=None)
async def retrieve_template(api: CallerApi, template_name: TemplatePath, project_id: ProjectId = None) -> JsonAnswer:
    template, versions = await api.templates.get(without_project(template_name))
    shown = [version_shape(template, one) for one in versions]
    saved = [one for one in versions if one.number != UNSAVED]
    current = [one for one in versions if one.number == (UNSAVED if template.changed else template.base)]
    return JsonAnswer(
        {
            **template_shape(template, project_id),
            "memory_variables": list(current[0].variables) if current else [],
            "versions": [*shown[len(saved) :], *shown[: len(saved)]],
        }
    )


@router.get("/{template_version}/snapshot", summary="Get a version as an agent file (Kelpie)", response_model=None)
async def retrieve_snapshot(api: CallerApi, template_version: VersionPath) -> Response:
    found = await api.templates.snapshot(VersionName.parse(template_version))
    return Response(found.document, media_type="application/json")


@router.patch("/{template_name}", summary="Update the current version of a template", response_model=None)
async def update_template(api: CallerApi, template_name: TemplatePath, body: UpdateTemplate) -> JsonAnswer:
    document, file = template_document(orjson.dumps(body.agent_file_json), AGENT_FILE_JSON)
    draft = Draft(document, file, AGENT_FILE_JSON, None, body.update_existing_tools)
    changed, saved = await api.templates.update(
        without_project(template_name), draft, save_existing=body.save_existing_changes
    )
    before = "" if saved is None else f" The unsaved changes before it were saved as version {saved}."
    told = "has unsaved changes now" if changed.template.changed else f"is version {changed.template.base}, unchanged"
    message = f"The current version of '{changed.template.name}' {told}.{before}"
    return JsonAnswer({"success": True, "message": message, **noted(changed.notes)})


@router.post("/{template_name}/save", summary="Save the current version of a template", response_model=None)
async def save_template(
    api: CallerApi, template_name: TemplatePath, body: SaveTemplate | None = None, project_id: ProjectId = None
) -> JsonAnswer:
    wanted = body or SaveTemplate.model_validate({})
    template = await api.templates.save(without_project(template_name), wanted.message)
    answer: dict[str, Any] = template_shape(template, project_id)
    if wanted.migrate_agents:
        version = await api.templates.snapshot(VersionName(template.name, template.latest))
        migrated = await api.template_migration.run(version, read_document, wanted.migration())
        answer["kelpie_migrated_agents"] = migrated.agents
        if migrated.left:
            answer |= noted([f"{migrated.left} agents stayed as they are: the version has no agent of their kind."])
    return JsonAnswer(answer)


@router.post("/{template_name}/rollback", summary="Roll a template back to a version", response_model=None)
async def roll_back_template(api: CallerApi, template_name: TemplatePath, body: RollBackTemplate) -> JsonAnswer:
    template, saved = await api.templates.roll_back(without_project(template_name), body.version)
    before = "" if saved is None else f" The unsaved changes before it were saved as version {saved}."
    message = f"The current version of '{template.name}' is version {template.base}.{before}"
    return JsonAnswer({"success": True, "message": message})


@router.delete("/{template_name}", summary="Delete a template with all versions", response_model=None)
async def delete_template(api: CallerApi, template_name: TemplatePath) -> JsonAnswer:
    await api.templates.delete(without_project(template_name))
    return JsonAnswer({"success": True})


@router.post("/{template_version}/agents", summary="Create agents from a template", response_model=None)
async def create_template_agents(
    api: CallerApi,
    template_version: VersionPath,
    body: CreateTemplateAgents | None = None,
    project_id: ProjectId = None,
    project: Project = None,
) -> JsonAnswer:
    check_project(project or DEFAULT_PROJECT)
    new = new_deployment(body or CreateTemplateAgents.model_validate({}), project_id)
    return JsonAnswer(deployed_shape(await _deployed(api, template_version, new)))


@router.post(
    "/{project_slug}/{template_version}/agents",
    summary="Create agents from a template of a project",
    deprecated=True,
    response_model=None,
)
async def create_project_agents(
    api: CallerApi,
    project_slug: str,
    template_version: VersionPath,
    body: CreateTemplateAgents | None = None,
    project_id: ProjectId = None,
) -> JsonAnswer:
    new = new_deployment(body or CreateTemplateAgents.model_validate({}), project_id)
    return JsonAnswer(deployed_shape(await _deployed(api, f"{project_slug}/{template_version}", new)))


async def _deployed(api: CallerApi, version: str, new: NewDeployment) -> Deployed:
    return await api.templates.deploy(VersionName.parse(version), read_document, new)


@agent_router.post("/", summary="Create an agent", response_model=None)
async def create_agent(
    api: CallerApi, body: CreateAgent, project_id: ProjectId = None, project: Project = None
) -> JsonAnswer:
    if not body.from_template:
        return JsonAnswer(await shape(api, await api.agents.create(new_agent(body))))
    check_project(project or DEFAULT_PROJECT)
    made = await _deployed(api, body.from_template, agent_deployment(body, project_id))
    answer = await shape(api, await api.agents.get(made.agent_ids[0]))
    return JsonAnswer({**answer, **noted(made.notes)})
