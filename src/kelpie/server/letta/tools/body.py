"""Request bodies for tools: create, change, filter and search."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, Header, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator

from kelpie.core.errors import InvalidInput
from kelpie.core.search_hits import SearchMode
from kelpie.core.tools.tools import DEFAULT_RETURN_CHAR_LIMIT, NewTool, ToolQuery, ToolSearch, ToolType
from kelpie.server.http.errors import Unprocessable
from kelpie.server.http.limits.free_json import JsonSchema, Metadata
from kelpie.server.http.limits.request_limits import LINKS_MAX, Links, Part, SearchText, Tags
from kelpie.server.letta.tools.confinement_body import ToolSandboxBody
from kelpie.server.letta.tools.field_aliases import unaliased

ReturnLimit = Annotated[int, Field(ge=1, le=1_000_000)]
Project = Annotated[str | None, Header(alias="X-Project-Id", description="The project whose tools to use.")]


class Requirement(BaseModel):
    name: str
    version: str | None = None


Requirements = Annotated[list[Requirement], Field(max_length=LINKS_MAX, fail_fast=True)]
SourceType = Literal["python", "typescript", "javascript", "json"]


class CreateTool(BaseModel):
    """A tool from source code. Its name is the function's, or the one in the schema.

    `schema`, `runtime` and `requirements` are accepted for `json_schema`, `source_type` and the requirements of either.
    """

    model_config = ConfigDict(extra="forbid")

    source_code: str
    source_type: SourceType | None = None
    description: str | None = None
    tags: Tags | None = None
    json_schema: JsonSchema | None = None
    args_json_schema: JsonSchema | None = None
    return_char_limit: ReturnLimit = DEFAULT_RETURN_CHAR_LIMIT
    pip_requirements: Requirements | None = None
    npm_requirements: Requirements | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = False
    kelpie_sandbox: ToolSandboxBody | None = None

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, given: Any) -> Any:
        return unaliased(given)

    @model_validator(mode="after")
    def _has_schema(self) -> "CreateTool":
        if self.source_type == "typescript" and not self.json_schema:
            raise ValueError("a TypeScript tool needs json_schema; /v1/tools/generate-schema can write it")
        if self.source_type == "javascript" and not self.json_schema:
            raise ValueError("a JavaScript tool needs json_schema, because its source code does not declare types")
        return self


class UpdateTool(BaseModel):
    """Changes to a tool; omitted or null fields stay as they are."""

    model_config = ConfigDict(extra="ignore")

    description: str | None = None
    tags: Tags | None = None
    source_code: str | None = None
    source_type: SourceType | None = None
    json_schema: JsonSchema | None = None
    args_json_schema: JsonSchema | None = None
    return_char_limit: ReturnLimit | None = None
    pip_requirements: Requirements | None = None
    npm_requirements: Requirements | None = None
    metadata_: Metadata | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = None
    kelpie_sandbox: ToolSandboxBody | None = None

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, given: Any) -> Any:
        return unaliased(given)


class Code(BaseModel):
    """Source code to read a schema from; it is not stored."""

    code: str
    source_type: str | None = Field("python", description="`python` or `typescript`.")


class Approval(BaseModel):
    model_config = ConfigDict(extra="forbid")

    requires_approval: bool


class SearchTools(BaseModel):
    """The query of a tool search."""

    model_config = ConfigDict(extra="forbid")

    query: SearchText | None = None
    search_mode: SearchMode = "hybrid"
    tool_types: Links | None = None
    tags: Tags | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 50


def new_tool(body: CreateTool, project_id: str | None = None) -> NewTool:
    given = body.model_dump(exclude={"kelpie_sandbox"})
    sandbox = body.kelpie_sandbox.stored() if body.kelpie_sandbox else {}
    return NewTool(**given | _tuples(body), sandbox=sandbox, project_id=project_id)


def tool_changes(body: UpdateTool) -> dict[str, Any]:
    """The fields to change, by the names of `Tool`."""
    changes = body.model_dump(exclude_none=True, exclude={"kelpie_sandbox"}) | {
        k: v for k, v in _tuples(body).items() if getattr(body, k) is not None
    }
    if body.kelpie_sandbox is not None:
        changes["sandbox"] = body.kelpie_sandbox.stored()
    if "metadata_" in changes:
        changes["metadata"] = changes.pop("metadata_")
    return changes


def tool_filter(body: SearchTools) -> ToolSearch:
    """Raises InvalidInput for an unknown tool type."""
    return ToolSearch(
        text=body.query or "",
        tool_types=tuple(_tool_type(one) for one in body.tool_types or ()),
        tags=tuple(body.tags or ()),
        limit=body.limit,
        mode=body.search_mode,
    )


def _tuples(body: CreateTool | UpdateTool) -> dict[str, Any]:
    return {
        "tags": tuple(body.tags or ()),
        "pip_requirements": requirements(body.pip_requirements),
        "npm_requirements": requirements(body.npm_requirements),
    }


def requirements(given: list[Requirement] | None) -> tuple[dict[str, Any], ...] | None:
    return None if given is None else tuple(one.model_dump() for one in given)


async def _filters(
    name: Annotated[str | None, Query(description="The exact name.")] = None,
    names: Annotated[list[str] | None, Query()] = None,
    tool_ids: Annotated[list[str] | None, Query()] = None,
    search: Part = None,
    tool_types: Annotated[list[str] | None, Query()] = None,
    exclude_tool_types: Annotated[list[str] | None, Query()] = None,
    return_only_letta_tools: Annotated[bool | None, Query(description="Return only built-in tools.")] = False,
    project_id: Project = None,
) -> ToolQuery:
    return ToolQuery(
        name=name,
        names=tuple(_split("names", names)),
        tool_ids=tuple(_split("tool_ids", tool_ids)),
        search=search,
        tool_types=tuple(_tool_type(one) for one in _split("tool_types", tool_types)),
        exclude_tool_types=tuple(_tool_type(one) for one in _split("exclude_tool_types", exclude_tool_types)),
        only_letta=bool(return_only_letta_tools),
        project_id=project_id,
    )


if TYPE_CHECKING:
    Filters = ToolQuery
else:
    Filters = Annotated[ToolQuery, Depends(_filters)]


def _split(name: str, values: list[str] | None) -> list[str]:
    found = [part for value in values or () for part in value.split(",") if part]
    if len(found) > LINKS_MAX:
        raise Unprocessable(
            f"{name}: lists {len(found)} tools, but a request may list at most {LINKS_MAX}; send several requests"
        )
    return found


def _tool_type(text: str) -> ToolType:
    try:
        return ToolType(text)
    except ValueError:
        raise InvalidInput("tool_types", f"'{text[:80]}' is not one of {', '.join(ToolType)}") from None
