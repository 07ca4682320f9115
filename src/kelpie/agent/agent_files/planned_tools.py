"""Tools of an agent file: which of them this server has, which are registered with the import, and which it lacks.

A tool is found by its name. A custom tool replaces the one of its name if the client wants that; built-in tools are
never replaced. What is missing is kept with the agent for its next export.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kelpie.core.agents.agent_file import Document, FileServer, FileTool, member
from kelpie.core.errors import Conflict
from kelpie.core.ids import AgentId, OrganizationId, UserId
from kelpie.core.time import Micros
from kelpie.core.tools.mcp_servers import McpServer
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.mcp.client.answers import RemoteTool
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.tools import mcp_servers, mcp_tools, tools
from kelpie.tools.builtin import RESERVED
from kelpie.tools.mcp import tool_sync
from kelpie.tools.mcp.tool_sync import Listed
from kelpie.world.database import Tx

_HEARTBEAT = "request_heartbeat"  # Letta adds it to the arguments of every tool


@dataclass(frozen=True, slots=True)
class PlannedServer:
    """An MCP server that is registered with the import, and its tools as the file has them."""

    server: McpServer
    listed: tuple[Listed, ...]
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlannedTools:
    """Decisions about the tools of a file, by reference: a custom tool to register, the server of an MCP tool, or the
    document of one that this server lacks. All others exist under their names."""

    names: Mapping[str, str]
    made: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    remote: Mapping[str, str] = field(default_factory=dict[str, str])  # reference: name of the new server
    lacking: Mapping[str, Document] = field(default_factory=dict[str, Document])
    servers: tuple[PlannedServer, ...] = ()
    lacking_servers: Mapping[str, Document] = field(default_factory=dict[str, Document])
    override: bool = True


def remote_tool(tool: FileTool) -> RemoteTool:
    """A tool of an MCP server, as the file knows it; its server is asked as soon as it is reached."""
    parameters = dict(member(member(tool.document, "json_schema"), "parameters"))
    properties = member(parameters, "properties")
    parameters["properties"] = {name: value for name, value in properties.items() if name != _HEARTBEAT}
    required: Any = parameters.get("required")
    if isinstance(required, list):
        parameters["required"] = [name for name in cast("list[Any]", required) if name != _HEARTBEAT]
    parameters.setdefault("type", "object")
    description: Any = tool.document.get("description")
    name: Any = tool.document.get("kelpie_remote_name")
    return RemoteTool(
        name if isinstance(name, str) and name else tool.name,
        description if isinstance(description, str) else "",
        parameters,
    )


def may_replace(tool: FileTool, there: Tool | None, override: bool) -> bool:
    """Checks whether the custom tool of a file is registered, given the tool that has its name."""
    if tool.new is None or tool.name in RESERVED:
        return False
    return there is None or (override and there.tool_type is ToolType.custom)


def lacking_servers(servers: Sequence[FileServer], tools: Sequence[FileTool]) -> dict[str, Document]:
    """The servers of tools that are kept as they are, by name."""
    wanted = {tool.server_name for tool in tools}
    return {server.name: server.document for server in servers if server.name in wanted}


def write(
    tx: Tx, plan: PlannedTools, organization: OrganizationId, user: UserId, now: Micros, sealing: Sealing
) -> tuple[dict[str, Tool], tuple[AgentId, ...]]:
    """Registers what is new; returns the tools by reference, and the agents that must see a change.

    Raises Conflict when a tool or a server was registered or deleted since the plan was made.
    """
    affected: list[AgentId] = []
    found: dict[str, Tool] = {}
    of_server: dict[str, dict[str, Tool]] = {}
    for each in plan.servers:
        mcp_servers.insert(tx, each.server, sealing)
        tool_sync.store(tx, each.server, each.listed, each.refused, now, user)
        of_server[each.server.server_name] = {
            one.remote_name: one.tool for one in mcp_tools.of_server(tx, each.server.id)
        }
    there = tools.by_names(tx, organization, sorted(set(plan.names.values())))
    for reference, name in plan.names.items():
        if reference in plan.lacking:
            continue
        if (server := plan.remote.get(reference)) is not None:
            tool = of_server[server].get(name)
        elif (made := plan.made.get(reference)) is not None and (name not in there or plan.override):
            tool, holders = tools.upsert(tx, made)
            affected += agent_rows.bump_many(tx, holders)
        else:
            tool = there.get(name)
        if tool is None:
            raise Conflict(f"The tool '{name}' was deleted meanwhile. Send the request again.")
        found[reference] = tool
    return found, tuple(dict.fromkeys(affected))
