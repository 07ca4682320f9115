"""MCP servers as rows. A server's name is unique in its organisation."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import McpServerId, OrganizationId
from kelpie.core.tools.mcp_servers import McpConfig, McpServer, McpServerType
from kelpie.storage.tables import mcp_servers
from kelpie.world.database import Tx

LIST_MAX = 10_000

_OURS = sa.select(mcp_servers).where(mcp_servers.c.organization_id == sa.bindparam("of_organization"))
_ALL = _OURS.order_by(mcp_servers.c.created_at, mcp_servers.c.id).limit(LIST_MAX)
_ONE = _OURS.where(mcp_servers.c.id == sa.bindparam("of_server"))
_ONE_LOCKED = _ONE.with_for_update()
_NAMED = _OURS.where(mcp_servers.c.server_name == sa.bindparam("of_name"))
_INSERT = sa.insert(mcp_servers)
_DELETE = sa.delete(mcp_servers).where(mcp_servers.c.id == sa.bindparam("of_server"))
_CHANGEABLE = [
    column for column in mcp_servers.c if column.name not in {"id", "organization_id", "created_by_id", "created_at"}
]
_UPDATE = (
    sa.update(mcp_servers)
    .where(mcp_servers.c.id == sa.bindparam("of_server"))
    .values({column.name: sa.bindparam(f"new_{column.name}", type_=column.type) for column in _CHANGEABLE})
)


def _to_row(server: McpServer) -> dict[str, Any]:
    config = server.config
    return {
        "id": server.id,
        "organization_id": server.organization_id,
        "server_name": server.server_name,
        "server_type": config.server_type.value,
        "command": config.command,
        "args": list(config.args),
        "env": None if config.env is None else dict(config.env),
        "server_url": config.server_url,
        "auth_header": config.auth_header,
        "token": config.token,
        "custom_headers": None if config.custom_headers is None else dict(config.custom_headers),
        "created_by_id": server.created_by_id,
        "last_updated_by_id": server.last_updated_by_id,
        "created_at": server.created_at,
        "updated_at": server.updated_at,
    }


def _from_row(row: sa.Row[Any]) -> McpServer:
    config = McpConfig(
        server_type=McpServerType(row.server_type),
        command=row.command,
        args=tuple(row.args),
        env=row.env,
        server_url=row.server_url,
        auth_header=row.auth_header,
        token=row.token,
        custom_headers=row.custom_headers,
    )
    return McpServer(
        id=McpServerId(row.id),
        server_name=row.server_name,
        config=config,
        created_at=row.created_at,
        updated_at=row.updated_at,
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
    )


def get(tx: Tx, organization: OrganizationId, server_id: str, *, lock: bool = False) -> McpServer:
    """Raises NotFound."""
    row = tx.execute(_ONE_LOCKED if lock else _ONE, {"of_organization": organization, "of_server": server_id}).first()
    if row is None:
        raise NotFound("MCPServer", server_id[:80])
    return _from_row(row)


def by_name(tx: Tx, organization: OrganizationId, name: str) -> McpServer:
    """Raises NotFound."""
    row = tx.execute(_NAMED, {"of_organization": organization, "of_name": name}).first()
    if row is None:
        raise NotFound("MCPServer", name[:80])
    return _from_row(row)


def select(tx: Tx, organization: OrganizationId) -> list[McpServer]:
    """All servers, oldest first."""
    return [_from_row(row) for row in tx.execute(_ALL, {"of_organization": organization})]


def insert(tx: Tx, server: McpServer) -> None:
    """Raises Conflict when the name is taken."""
    try:
        tx.execute(_INSERT, _to_row(server))
    except IntegrityError as error:
        raise _name_conflict(server.server_name) from error


def replace(tx: Tx, server: McpServer) -> None:
    """Writes every field of an existing server. Raises Conflict when its new name is taken."""
    taken = tx.execute(_NAMED, {"of_organization": server.organization_id, "of_name": server.server_name}).first()
    if taken is not None and taken.id != server.id:
        raise _name_conflict(server.server_name)
    row = _to_row(server)
    tx.execute(_UPDATE, {f"new_{column.name}": row[column.name] for column in _CHANGEABLE} | {"of_server": server.id})


def delete(tx: Tx, organization: OrganizationId, server_id: str) -> None:
    """Raises NotFound."""
    tx.execute(_DELETE, {"of_server": get(tx, organization, server_id, lock=True).id})


def _name_conflict(name: str) -> Conflict:
    return Conflict(f"an MCP server with the name '{name}' already exists; update that one or use another name")
