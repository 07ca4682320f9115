"""Tools as they are registered: the model's view of them, and the code that runs them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kelpie.core.ids import DEFAULT_ORGANIZATION, OrganizationId, ToolId
from kelpie.core.paging import Page
from kelpie.core.search_hits import Hit, SearchMode
from kelpie.core.time import Micros

DEFAULT_RETURN_CHAR_LIMIT = 50_000
# Kelpie's built-in tools. Their code is in `tools.builtin`; code that only asks about them needs just the names.
BUILTIN_NAMES = (
    "archival_memory_insert",
    "archival_memory_search",
    "conversation_search",
    "conversation_search_date",
    "core_memory_append",
    "core_memory_replace",
    "fact_search",
    "fetch_webpage",
    "filesystem",
    "finish_rethinking_memory",
    "grep_files",
    "memory",
    "memory_apply_patch",
    "memory_finish_edits",
    "memory_insert",
    "memory_replace",
    "memory_rethink",
    "open_files",
    "pause_heartbeats",
    "rethink_memory",
    "rethink_user_memory",
    "run_code",
    "run_code_with_tools",
    "search_memory",
    "semantic_search_files",
    "send_message",
    "send_message_to_agent_and_wait_for_reply",
    "send_message_to_agent_async",
    "send_message_to_agents_matching_tags",
    "shell",
    "store_memories",
    "web_search",
    "working_memory_delete",
    "working_memory_get",
    "working_memory_list",
    "working_memory_set",
    "working_memory_update",
)


class ToolType(StrEnum):
    custom = "custom"
    letta_core = "letta_core"
    letta_memory_core = "letta_memory_core"
    letta_multi_agent_core = "letta_multi_agent_core"
    letta_sleeptime_core = "letta_sleeptime_core"
    letta_voice_sleeptime_core = "letta_voice_sleeptime_core"
    letta_builtin = "letta_builtin"
    letta_files_core = "letta_files_core"
    external_langchain = "external_langchain"
    external_composio = "external_composio"
    external_mcp = "external_mcp"


@dataclass(frozen=True, slots=True)
class Tool:
    id: ToolId
    name: str
    tool_type: ToolType
    json_schema: Mapping[str, Any]  # {name, description, parameters}
    created_at: Micros
    updated_at: Micros
    description: str | None = None
    source_type: str | None = "python"
    source_code: str | None = None
    args_json_schema: Mapping[str, Any] | None = None
    tags: tuple[str, ...] = ()
    return_char_limit: int = DEFAULT_RETURN_CHAR_LIMIT
    pip_requirements: tuple[Mapping[str, Any], ...] | None = None
    npm_requirements: tuple[Mapping[str, Any], ...] | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = False
    metadata: Mapping[str, Any] | None = field(default_factory=dict[str, Any])
    project_id: str | None = None
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
    version: int = 1
    sandbox: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # its confinement settings; see `tool_confinement`


@dataclass(frozen=True, slots=True)
class NewTool:
    """A custom tool to register; its name is the name in its schema."""

    source_code: str | None
    json_schema: Mapping[str, Any] | None = None
    args_json_schema: Mapping[str, Any] | None = None
    description: str | None = None
    source_type: str | None = None
    tags: tuple[str, ...] = ()
    return_char_limit: int = DEFAULT_RETURN_CHAR_LIMIT
    pip_requirements: tuple[Mapping[str, Any], ...] | None = None
    npm_requirements: tuple[Mapping[str, Any], ...] | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = False
    project_id: str | None = None
    sandbox: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolQuery:
    """Filter for a list of tools."""

    page: Page = Page()
    name: str | None = None
    names: tuple[str, ...] = ()
    tool_ids: tuple[str, ...] = ()
    search: str | None = None
    tool_types: tuple[ToolType, ...] = ()
    exclude_tool_types: tuple[ToolType, ...] = ()
    only_letta: bool = False
    exclude_letta: bool = False
    project_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """Search among tools; without words, the newest. A tool must have at least one of `tags`."""

    text: str = ""
    tool_types: tuple[ToolType, ...] = ()
    tags: tuple[str, ...] = ()
    limit: int = 50
    mode: SearchMode = "hybrid"


@dataclass(frozen=True, slots=True)
class ToolHit:
    """A tool, its hit, and the text that matched; a search without words has neither."""

    tool: Tool
    hit: Hit | None
    text: str | None = None
