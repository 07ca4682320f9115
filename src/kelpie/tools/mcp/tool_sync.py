"""Tools of a server in the database, kept in step with its own list: added, changed and removed in one transaction.

A tool keeps its id while its server lists it, so agents keep it. One whose name is taken by another tool gets the
server's name before its own. One that cannot be offered to a model is left out, with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kelpie.core.ids import AgentId, ToolId, UserId
from kelpie.core.time import Micros
from kelpie.core.tools.mcp_servers import McpServer
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.mcp.client.answers import RemoteTool
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.tools import mcp_tools
from kelpie.storage.tools import tools as rows
from kelpie.storage.tools.mcp_tools import ServerTool
from kelpie.tools.builtin import RESERVED
from kelpie.tools.custom.definition import fingerprint
from kelpie.tools.mcp.tool_schemas import (
    DESCRIPTION_CHARS_MAX,
    STATUS_KEY,
    WARNINGS_KEY,
    ReadySchema,
    SchemaRefused,
    namespaced,
    plain_name,
    ready_schema,
)
from kelpie.world.database import Tx

# Letta's tools of this kind have source code that only raises; nothing ever runs it.
_SOURCE = 'def {}(**kwargs):\n    raise RuntimeError("This tool runs on its MCP server and has no code here.")'


@dataclass(frozen=True, slots=True)
class SyncResult:
    """Names of the tools that changed, and of those that were refused, with the reasons."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    refused: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool as its server lists it, ready to be stored."""

    remote: RemoteTool
    schema: ReadySchema
    uuid: str  # for a new one


def ready(remote: Sequence[RemoteTool], uuids: Sequence[str]) -> tuple[list[Listed], dict[str, str]]:
    """The tools that can be stored, and the reasons why the others cannot. Of two with one name, the first counts."""
    found: dict[str, Listed] = {}
    refused: dict[str, str] = {}
    for tool, uuid in zip(remote, uuids, strict=True):
        if tool.name in found:
            refused[tool.name] = "the server lists it twice; the first is used"
            continue
        try:
            found[tool.name] = Listed(tool, ready_schema(tool), uuid)
        except SchemaRefused as error:
            refused[tool.name] = str(error)
    return list(found.values()), refused


def store(
    tx: Tx, server: McpServer, listed: Sequence[Listed], refused: Mapping[str, str], now: Micros, user: UserId | None
) -> tuple[SyncResult, tuple[AgentId, ...]]:
    """Writes what changed; returns that, and the agents that must see it."""
    there = {each.remote_name: each for each in mcp_tools.of_server(tx, server.id)}
    added, updated, deleted, affected = list[str](), list[str](), list[str](), list[AgentId]()
    wanted = {each.remote.name for each in listed}
    for name in sorted(there.keys() - wanted):
        affected += rows.delete(tx, there[name].tool.id)
        deleted.append(there[name].tool.name)
    for each in listed:
        if (known := there.get(each.remote.name)) is not None:
            if agents := _update(tx, server, known, each, now, user):
                updated.append(known.tool.name)
                affected += agents[1]
        else:
            tool = _new(server, each, _free_name(tx, server, each.remote.name), now + len(added), user)
            rows.insert(tx, tool)
            mcp_tools.add(tx, tool.id, server.id, each.remote.name, wire_tool(each.remote))
            added.append(tool.name)
    touched = agent_rows.bump_many(tx, tuple(dict.fromkeys(affected)))
    return SyncResult(tuple(added), tuple(updated), tuple(deleted), dict(refused)), touched


def remove(tx: Tx, server_id: str) -> tuple[AgentId, ...]:
    """Deletes the tools of a server; returns the agents that had them."""
    affected: list[AgentId] = []
    for each in mcp_tools.of_server(tx, server_id):
        affected += rows.delete(tx, each.tool.id)
    return agent_rows.bump_many(tx, tuple(dict.fromkeys(affected)))


def rename(tx: Tx, server: McpServer, now: Micros) -> tuple[AgentId, ...]:
    """Writes the server's new name into its tools; returns the agents that have them."""
    affected: list[AgentId] = []
    for each in mcp_tools.of_server(tx, server.id):
        changes = {"tags": _tags(server), "metadata": dict(each.tool.metadata or {}) | _metadata(server)}
        affected += rows.update(tx, each.tool.id, changes, now, server.last_updated_by_id)[2]
    return agent_rows.bump_many(tx, tuple(dict.fromkeys(affected)))


def wire_tool(remote: RemoteTool) -> dict[str, Any]:
    """The tool in the fields of MCP."""
    return {
        "name": remote.name,
        "title": remote.title,
        "description": remote.description,
        "inputSchema": dict(remote.input_schema),
        "outputSchema": None if remote.output_schema is None else dict(remote.output_schema),
        "annotations": None if remote.annotations is None else dict(remote.annotations),
        "_meta": None if remote.meta is None else dict(remote.meta),
        "needs_task": remote.needs_task,
    }


def _update(
    tx: Tx, server: McpServer, known: ServerTool, each: Listed, now: Micros, user: UserId | None
) -> tuple[bool, tuple[AgentId, ...]] | None:
    wire = wire_tool(each.remote)
    if dict(known.remote) == wire and known.tool.json_schema == _json_schema(known.tool.name, each):
        return None
    schema = _json_schema(known.tool.name, each)
    changes = {"json_schema": schema, "description": schema["description"], "tags": _tags(server)}
    _, _, affected = rows.update(tx, known.tool.id, changes, now, user)
    mcp_tools.replace(tx, known.tool.id, wire)
    return True, affected


def _new(server: McpServer, each: Listed, name: str, now: Micros, user: UserId | None) -> Tool:
    schema, source = _json_schema(name, each), _SOURCE.format(name.replace("-", "_"))
    return Tool(
        id=ToolId(f"tool-{each.uuid}"),
        name=name,
        tool_type=ToolType.external_mcp,
        json_schema=schema,
        created_at=now,
        updated_at=now,
        description=schema["description"],
        source_type="python",
        source_code=source,
        args_json_schema={},
        tags=_tags(server),
        metadata=_metadata(server) | {"tool_hash": fingerprint(source, "python")},
        organization_id=server.organization_id,
        created_by_id=user,
        last_updated_by_id=user,
    )


def _json_schema(name: str, each: Listed) -> dict[str, Any]:
    return {
        "name": name,
        "description": each.remote.description[:DESCRIPTION_CHARS_MAX],
        "parameters": dict(each.schema.parameters),
        STATUS_KEY: each.schema.status,
        WARNINGS_KEY: list(each.schema.warnings),
    }


def _tags(server: McpServer) -> tuple[str, ...]:
    return (f"mcp:{server.server_name}",)


def _metadata(server: McpServer) -> dict[str, Any]:
    return {"mcp": {"server_name": server.server_name, "server_id": server.id}}


def _free_name(tx: Tx, server: McpServer, remote_name: str) -> str:
    """The tool's own name if no other tool has it, otherwise one with the server's name before it."""
    own, spaced = plain_name(remote_name), namespaced(server.server_name, remote_name)
    candidates = [own, spaced, *(plain_name(f"{spaced[:60]}_{number}") for number in range(2, 100))]
    taken = rows.by_names(tx, server.organization_id, candidates)
    return next(name for name in candidates if name not in taken and name not in RESERVED)
