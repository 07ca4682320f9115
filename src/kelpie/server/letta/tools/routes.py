"""The tools resource."""

from dataclasses import replace
from typing import Annotated

from fastapi import Query

from kelpie.core.errors import InvalidInput, NotFound
from kelpie.server.http.headers.search_headers import mode_headers
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import Page50
from kelpie.server.http.path_ids import ToolPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.tools.body import (
    Code,
    CreateTool,
    Filters,
    Project,
    SearchTools,
    UpdateTool,
    new_tool,
    tool_changes,
    tool_filter,
)
from kelpie.server.letta.tools.shape import hit_shape, tool_shape

router = resource("/tools", "tools")
agent_router = resource("/agents/{agent_id}/tools", "tools")


@router.post("/", summary="Create a tool, or update the one with this name", response_model=None)
async def create_tool(api: CallerApi, body: CreateTool, project_id: Project = None) -> JsonAnswer:
    return JsonAnswer(tool_shape(await api.tools.create(new_tool(body, project_id))))


@router.put("/", summary="Create a tool, or update the one with this name", response_model=None)
async def upsert_tool(api: CallerApi, body: CreateTool, project_id: Project = None) -> JsonAnswer:
    return JsonAnswer(tool_shape(await api.tools.upsert(new_tool(body, project_id))))


@router.get("/", summary="List tools", response_model=None)
async def list_tools(api: CallerApi, query: Filters, page: Page50) -> JsonAnswer:
    return await listed(await api.tools.page(replace(query, page=page)), tool_shape)


@router.get("/count", summary="Count tools", response_model=None)
async def count_tools(
    api: CallerApi,
    query: Filters,
    exclude_letta_tools: Annotated[bool | None, Query(description="Leave out built-in tools.")] = False,
) -> JsonAnswer:
    return JsonAnswer(await api.tools.count(replace(query, exclude_letta=bool(exclude_letta_tools))))


@router.post("/search", summary="Search tools by full text and vectors", response_model=None)
async def search_tools(api: CallerApi, body: SearchTools) -> JsonAnswer:
    searched = await api.tools.search(tool_filter(body))
    return JsonAnswer([hit_shape(hit) for hit in searched.found], headers=mode_headers(searched.mode, searched.lacking))


@router.post("/generate-schema", summary="Generate the JSON schema of a tool's source code", response_model=None)
async def generate_schema(api: CallerApi, body: Code) -> JsonAnswer:
    if body.source_type not in (None, "python", "typescript"):
        raise InvalidInput("source_type", f"'{body.source_type[:80]}' is neither python nor typescript")
    sources = api.tools.sources
    try:
        typescript = body.source_type == "typescript"
        return JsonAnswer(await (sources.typescript_schema(body.code) if typescript else sources.schema(body.code)))
    except InvalidInput as error:
        raise InvalidInput("code" if error.field == "source_code" else error.field, error.remedy) from error


@router.post("/add-base-tools", summary="Restore the built-in tools", response_model=None)
async def add_base_tools(api: CallerApi) -> JsonAnswer:
    return await listed(await api.tools.ensure_builtins(), tool_shape)


@router.get("/{tool_id}", summary="Get a tool", response_model=None)
async def retrieve_tool(api: CallerApi, tool_id: ToolPath) -> JsonAnswer:
    return JsonAnswer(tool_shape(await api.tools.get(tool_id)))


@router.patch("/{tool_id}", summary="Update a tool", response_model=None)
async def update_tool(api: CallerApi, tool_id: ToolPath, body: UpdateTool) -> JsonAnswer:
    return JsonAnswer(tool_shape(await api.tools.update(tool_id, tool_changes(body))))


@router.delete("/{tool_id}", summary="Delete a tool and detach it from all agents", response_model=None)
async def delete_tool(api: CallerApi, tool_id: ToolPath) -> JsonAnswer:
    try:
        await api.tools.delete(tool_id)
    except NotFound as error:
        raise InvalidInput("tool_id", str(error)) from None  # Letta's clients expect 400 here
    return JsonAnswer(None)
