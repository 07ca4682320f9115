"""The tools resource, and the tools of an agent."""

from dataclasses import replace
from typing import Annotated

from fastapi import Query

from kelpie.core.agents import AgentView
from kelpie.core.errors import InvalidInput, NotFound
from kelpie.server.answer import Answer
from kelpie.server.errors import Unprocessable
from kelpie.server.house import House
from kelpie.server.letta.agents import shape
from kelpie.server.letta.ids import AgentPath, ToolPath
from kelpie.server.letta.paging import Page10, Page50
from kelpie.server.letta.resource import resource
from kelpie.server.letta.sdk import SdkV1
from kelpie.server.letta.search_shape import how_shape
from kelpie.server.letta.tool_body import (
    Approval,
    Code,
    CreateTool,
    Filters,
    Project,
    SearchTools,
    UpdateTool,
    new_tool,
    tool_changes,
    wanted_tools,
)
from kelpie.server.letta.tool_shape import hit_shape, tool_shape
from kelpie.tools.schema import schema_from_source
from kelpie.tools.typescript import schema_from_typescript

router = resource("/tools", "tools")
agent_router = resource("/agents/{agent_id}/tools", "tools")


@router.post("/", summary="Register a tool, or renew the one of that name", response_model=None)
async def create_tool(kelpie: House, body: CreateTool, project_id: Project = None) -> Answer:
    return Answer(tool_shape(await kelpie.tools.create(new_tool(body, project_id))))


@router.put("/", summary="Register a tool, or renew the one of that name", response_model=None)
async def upsert_tool(kelpie: House, body: CreateTool, project_id: Project = None) -> Answer:
    return Answer(tool_shape(await kelpie.tools.upsert(new_tool(body, project_id))))


@router.get("/", summary="List tools", response_model=None)
async def list_tools(kelpie: House, query: Filters, page: Page50) -> Answer:
    return Answer([tool_shape(tool) for tool in await kelpie.tools.list(replace(query, page=page))])


@router.get("/count", summary="Count tools", response_model=None)
async def count_tools(
    kelpie: House,
    query: Filters,
    exclude_letta_tools: Annotated[
        bool | None, Query(description="Without the tools that come with the server.")
    ] = False,
) -> Answer:
    return Answer(await kelpie.tools.count(replace(query, exclude_letta=bool(exclude_letta_tools))))


@router.post("/search", summary="Find tools by words and meaning", response_model=None)
async def search_tools(kelpie: House, body: SearchTools) -> Answer:
    searched = await kelpie.tools.search(wanted_tools(body))
    return Answer([hit_shape(hit) for hit in searched.found], headers=how_shape(searched.mode, searched.lacking))


@router.post("/generate-schema", summary="The JSON schema that source code would get", response_model=None)
async def generate_schema(body: Code) -> Answer:
    if body.source_type not in (None, "python", "typescript"):
        raise InvalidInput("source_type", f"'{body.source_type[:80]}' is neither python nor typescript")
    read = schema_from_typescript if body.source_type == "typescript" else schema_from_source
    try:
        return Answer(read(body.code))
    except InvalidInput as error:
        raise InvalidInput("code" if error.field == "source_code" else error.field, error.remedy) from error


@router.post("/add-base-tools", summary="Restore the tools that come with the server", response_model=None)
async def add_base_tools(kelpie: House) -> Answer:
    return Answer([tool_shape(tool) for tool in await kelpie.tools.ensure_builtins()])


@router.get("/{tool_id}", summary="Read a tool", response_model=None)
async def retrieve_tool(kelpie: House, tool_id: ToolPath) -> Answer:
    return Answer(tool_shape(await kelpie.tools.get(tool_id)))


@router.patch("/{tool_id}", summary="Change a tool", response_model=None)
async def update_tool(kelpie: House, tool_id: ToolPath, body: UpdateTool) -> Answer:
    return Answer(tool_shape(await kelpie.tools.update(tool_id, tool_changes(body))))


@router.delete("/{tool_id}", summary="Remove a tool from everywhere", response_model=None)
async def delete_tool(kelpie: House, tool_id: ToolPath) -> Answer:
    try:
        await kelpie.tools.delete(tool_id)
    except NotFound as error:
        raise InvalidInput("tool_id", str(error)) from None  # Letta's clients expect 400 here
    return Answer(None)


@agent_router.get("", summary="List an agent's tools", response_model=None)
async def list_agent_tools(kelpie: House, agent_id: AgentPath, page: Page10) -> Answer:
    return Answer([tool_shape(tool) for tool in await kelpie.tools.of_agent(agent_id, page)])


@agent_router.patch("/attach/{tool_id}", summary="Give an agent a tool", response_model=None)
async def attach_tool(kelpie: House, agent_id: AgentPath, tool_id: ToolPath, sdk_v1: SdkV1) -> Answer:
    return await _changed(kelpie, await kelpie.tools.attach(agent_id, tool_id), sdk_v1)


@agent_router.patch("/detach/{tool_id}", summary="Take a tool from an agent", response_model=None)
async def detach_tool(kelpie: House, agent_id: AgentPath, tool_id: ToolPath, sdk_v1: SdkV1) -> Answer:
    return await _changed(kelpie, await kelpie.tools.detach(agent_id, tool_id), sdk_v1)


@agent_router.patch("/approval/{tool_name}", summary="Make a tool wait for approval, or no longer", response_model=None)
async def modify_approval(
    kelpie: House,
    agent_id: AgentPath,
    tool_name: str,
    sdk_v1: SdkV1,
    body: Approval | None = None,
    requires_approval: Annotated[bool | None, Query(description="For clients that send no body.")] = None,
) -> Answer:
    wanted = body.requires_approval if body is not None else requires_approval
    if wanted is None:
        raise Unprocessable("requires_approval: say true or false, in the body or in the query")
    return await _changed(kelpie, await kelpie.tools.set_approval(agent_id, tool_name, wanted), sdk_v1)


async def _changed(kelpie: House, view: AgentView, sdk_v1: bool) -> Answer:
    return Answer(None if sdk_v1 else await shape(kelpie, kelpie.agents.with_status(view)))
