"""Which tools belong to which MCP server, and how their servers list them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from kelpie.core.ids import McpServerId, ToolId
from kelpie.core.tools.tools import Tool
from kelpie.storage.tables import mcp_tools, tools
from kelpie.storage.tools.rows import from_row
from kelpie.world.database import Tx

_OF_SERVER = (
    sa.select(tools, mcp_tools.c.remote_name, mcp_tools.c.remote)
    .join(tools, tools.c.id == mcp_tools.c.tool_id)
    .where(mcp_tools.c.server_id == sa.bindparam("of_server"))
    .order_by(tools.c.created_at, tools.c.id)
)
_ONE = sa.select(mcp_tools).where(mcp_tools.c.tool_id == sa.bindparam("of_tool"))
_INSERT = sa.insert(mcp_tools)
_UPDATE = (
    sa.update(mcp_tools)
    .where(mcp_tools.c.tool_id == sa.bindparam("of_tool"))
    .values(remote=sa.bindparam("new_remote", type_=mcp_tools.c.remote.type))
)
_OWNERS = sa.select(mcp_tools.c.tool_id, mcp_tools.c.server_id).where(
    mcp_tools.c.tool_id.in_(sa.bindparam("of_tools", expanding=True))
)


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool of a server: as Kelpie stores it, and as its server lists it."""

    tool: Tool
    remote_name: str
    remote: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolOrigin:
    server_id: McpServerId
    remote_name: str
    remote: Mapping[str, Any]


def of_server(tx: Tx, server_id: str) -> list[ServerTool]:
    """The tools of a server, oldest first."""
    rows = tx.execute(_OF_SERVER, {"of_server": server_id})
    return [ServerTool(from_row(row), row.remote_name, row.remote) for row in rows]


def origin(tx: Tx, tool_id: ToolId) -> ToolOrigin | None:
    """The server of a tool; None for a tool that has none, or whose server was deleted."""
    row = tx.execute(_ONE, {"of_tool": tool_id}).first()
    return None if row is None else ToolOrigin(McpServerId(row.server_id), row.remote_name, row.remote)


def owners(tx: Tx, tool_ids: Sequence[ToolId]) -> dict[str, str]:
    """The servers of those tools that have one."""
    return {row.tool_id: row.server_id for row in tx.execute(_OWNERS, {"of_tools": list(tool_ids)})}


def add(tx: Tx, tool_id: ToolId, server_id: str, remote_name: str, remote: Mapping[str, Any]) -> None:
    tx.execute(
        _INSERT, {"tool_id": tool_id, "server_id": server_id, "remote_name": remote_name, "remote": dict(remote)}
    )


def replace(tx: Tx, tool_id: ToolId, remote: Mapping[str, Any]) -> None:
    tx.execute(_UPDATE, {"of_tool": tool_id, "new_remote": dict(remote)})
