"""The tools resource, and the tools of an agent."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator

from kelpie.core.agents import EVERYTHING
from kelpie.core.errors import InvalidInput, NotFound
from kelpie.core.ids import AgentId
from kelpie.core.tools import DEFAULT_RETURN_CHAR_LIMIT, NewTool, ToolQuery, ToolType
from kelpie.server.answer import Answer
from kelpie.server.house import House
from kelpie.server.letta.agents import shape
from kelpie.server.letta.ids import AgentPath, ToolPath
from kelpie.server.letta.paging import Page10, Page50
from kelpie.server.letta.resource import resource
from kelpie.server.letta.sdk import SdkV1
from kelpie.server.letta.tool_shape import tool_shape

router = resource("/tools", "tools")
agent_router = resource("/agents/{agent_id}/tools", "tools")

ReturnLimit = Annotated[int, Field(ge=1, le=1_000_000)]


class Requirement(BaseModel):
    name: str
    version: str | None = None


class CreateTool(BaseModel):
    """A tool from source code. Its name is the function's, or the one in the schema."""

    model_config = ConfigDict(extra="forbid")

    source_code: str
    source_type: Literal["python", "typescript", "json"] | None = None
    description: str | None = None
    tags: list[str] | None = None
    json_schema: dict[str, Any] | None = None
    args_json_schema: dict[str, Any] | None = None
    return_char_limit: ReturnLimit = DEFAULT_RETURN_CHAR_LIMIT
    pip_requirements: list[Requirement] | None = None
    npm_requirements: list[Requirement] | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = False

    @model_validator(mode="after")
    def _has_schema(self) -> "CreateTool":
        if self.source_type == "typescript" and not self.json_schema:
            raise ValueError("a TypeScript tool needs json_schema, it is not read from the source")
        return self


class UpdateTool(BaseModel):
    """Changes to a tool; what is left out or null stays."""

    model_config = ConfigDict(extra="ignore")

    description: str | None = None
    tags: list[str] | None = None
    source_code: str | None = None
    source_type: str | None = None
    json_schema: dict[str, Any] | None = None
    args_json_schema: dict[str, Any] | None = None
    return_char_limit: ReturnLimit | None = None
    pip_requirements: list[Requirement] | None = None
    npm_requirements: list[Requirement] | None = None
    metadata_: dict[str, Any] | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = None


def new_tool(body: CreateTool) -> NewTool:
    given = body.model_dump()
    return NewTool(**given | _tuples(body))


def tool_changes(body: UpdateTool) -> dict[str, Any]:
    """The fields to change, by the names of `Tool`."""
    changes = body.model_dump(exclude_none=True) | {
        k: v for k, v in _tuples(body).items() if getattr(body, k) is not None
    }
    if "metadata_" in changes:
        changes["metadata"] = changes.pop("metadata_")
    return changes


def _tuples(body: CreateTool | UpdateTool) -> dict[str, Any]:
    return {
        "tags": tuple(body.tags or ()),
        "pip_requirements": _requirements(body.pip_requirements),
        "npm_requirements": _requirements(body.npm_requirements),
    }


def _requirements(given: list[Requirement] | None) -> tuple[dict[str, Any], ...] | None:
    return None if given is None else tuple(one.model_dump() for one in given)


async def selection(
    page: Page50,
    name: str | None = None,
    names: Annotated[list[str] | None, Query()] = None,
    tool_ids: Annotated[list[str] | None, Query()] = None,
    search: Annotated[str | None, Query(description="Part of the name.")] = None,
    tool_types: Annotated[list[str] | None, Query()] = None,
    exclude_tool_types: Annotated[list[str] | None, Query()] = None,
    return_only_letta_tools: Annotated[
        bool | None, Query(description="Only the tools that come with the server.")
    ] = False,
) -> ToolQuery:
    return ToolQuery(
        page=page,
        name=name,
        names=tuple(_split(names)),
        tool_ids=tuple(_split(tool_ids)),
        search=search,
        tool_types=tuple(_tool_type(one) for one in _split(tool_types)),
        exclude_tool_types=tuple(_tool_type(one) for one in _split(exclude_tool_types)),
        only_letta=bool(return_only_letta_tools),
    )


Selection = Annotated[ToolQuery, Depends(selection)]


def _split(values: list[str] | None) -> list[str]:
    return [part for value in values or () for part in value.split(",") if part]


def _tool_type(text: str) -> ToolType:
    try:
        return ToolType(text)
    except ValueError:
        raise InvalidInput("tool_types", f"'{text[:80]}' is none of {', '.join(ToolType)}") from None


@router.post("/", summary="Register a tool, or renew the one of that name", response_model=None)
async def create_tool(kelpie: House, body: CreateTool) -> Answer:
    return Answer(tool_shape(await kelpie.tools.create(new_tool(body))))


@router.put("/", summary="Register a tool, or renew the one of that name", response_model=None)
async def upsert_tool(kelpie: House, body: CreateTool) -> Answer:
    return Answer(tool_shape(await kelpie.tools.upsert(new_tool(body))))


@router.get("/", summary="List tools", response_model=None)
async def list_tools(kelpie: House, query: Selection) -> Answer:
    return Answer([tool_shape(tool) for tool in await kelpie.tools.list(query)])


@router.get("/count", summary="Count tools", response_model=None)
async def count_tools(kelpie: House, query: Selection) -> Answer:
    return Answer(await kelpie.tools.count(query))


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
    await kelpie.tools.attach(agent_id, tool_id)
    return await _after_change(kelpie, agent_id, sdk_v1)


@agent_router.patch("/detach/{tool_id}", summary="Take a tool from an agent", response_model=None)
async def detach_tool(kelpie: House, agent_id: AgentPath, tool_id: ToolPath, sdk_v1: SdkV1) -> Answer:
    await kelpie.tools.detach(agent_id, tool_id)
    return await _after_change(kelpie, agent_id, sdk_v1)


async def _after_change(kelpie: House, agent_id: AgentId, sdk_v1: bool) -> Answer:
    if sdk_v1:
        return Answer(None)
    return Answer(await shape(kelpie, await kelpie.agents.get(agent_id, EVERYTHING)))
