"""MCP servers as rows. A server's name is unique in its organisation. Token, variables and headers are encrypted."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.encryption import SecretPlace
from kelpie.core.errors import Conflict, NotFound, SecretUnreadable
from kelpie.core.ids import McpServerId, OrganizationId
from kelpie.core.tools.mcp_servers import GrantedDirectory, McpConfig, McpOptions, McpServer, McpServerType
from kelpie.storage.encryption.sealing import Sealing, text_of
from kelpie.storage.tables import mcp_servers
from kelpie.world.database import Tx
from kelpie.world.keyring import Keyring

LIST_MAX = 10_000

_OURS = sa.select(mcp_servers).where(mcp_servers.c.organization_id == sa.bindparam("of_organization"))
_ALL = _OURS.order_by(mcp_servers.c.created_at, mcp_servers.c.id).limit(LIST_MAX)
_ONE = _OURS.where(mcp_servers.c.id == sa.bindparam("of_server"))
_ANYBODYS = sa.select(mcp_servers).where(mcp_servers.c.id == sa.bindparam("of_server"))
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


def _to_row(server: McpServer, sealed: Mapping[str, str | None]) -> dict[str, Any]:
    config = server.config
    return {
        "id": server.id,
        "organization_id": server.organization_id,
        "server_name": server.server_name,
        "server_type": config.server_type.value,
        "command": config.command,
        "args": list(config.args),
        "server_url": config.server_url,
        "auth_header": config.auth_header,
        "options": _options_row(config.options),
        "created_by_id": server.created_by_id,
        "last_updated_by_id": server.last_updated_by_id,
        "created_at": server.created_at,
        "updated_at": server.updated_at,
        **sealed,
    }


def _options_row(options: McpOptions) -> dict[str, Any]:
    """The options that differ from the defaults."""
    row = asdict(options)
    return {name: value for name, value in row.items() if value not in (None, ())}


def _options(row: Mapping[str, Any]) -> McpOptions:
    return McpOptions(
        connect_s=row.get("connect_s"),
        read_s=row.get("read_s"),
        call_s=row.get("call_s"),
        egress=tuple(row.get("egress", ())),
        memory_mb=row.get("memory_mb"),
        directories=tuple(GrantedDirectory(**each) for each in row.get("directories", ())),
    )


def _sealed(tx: Tx, server: McpServer, sealing: Sealing) -> dict[str, str | None]:
    """The secrets of a server as they are stored. Raises SecretUnreadable when there is no key."""
    config = server.config
    texts: dict[str, str | None] = {"token": config.token}
    for name, pairs in (("env", config.env), ("custom_headers", config.custom_headers)):
        texts[name] = None if pairs is None else orjson.dumps(dict(pairs)).decode()
    if all(text is None for text in texts.values()):
        return texts
    key = sealing.key(tx)
    return {
        name: None if text is None else key.seal(_place(server.id, name), sealing.seed, text)
        for name, text in texts.items()
    }


def _place(server_id: str, column: str) -> SecretPlace:
    return SecretPlace(mcp_servers.name, server_id, column)


def _opened(row: sa.Row[Any], name: str, keyring: Keyring, unreadable: dict[str, str]) -> str | None:
    """The text of a secret; None if there is none, or if it cannot be read, which is then noted."""
    stored = getattr(row, name)
    if stored is None:
        return None
    try:
        return text_of(keyring, _place(row.id, name), stored)
    except SecretUnreadable as error:
        unreadable[name] = str(error)
        return None


def _from_row(row: sa.Row[Any], keyring: Keyring) -> McpServer:
    unreadable: dict[str, str] = {}
    env, headers = (_opened(row, name, keyring, unreadable) for name in ("env", "custom_headers"))
    config = McpConfig(
        server_type=McpServerType(row.server_type),
        command=row.command,
        args=tuple(row.args),
        env=None if env is None else orjson.loads(env),
        server_url=row.server_url,
        auth_header=row.auth_header,
        token=_opened(row, "token", keyring, unreadable),
        custom_headers=None if headers is None else orjson.loads(headers),
        options=_options(row.options),
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
        unreadable=unreadable,
    )


def get(tx: Tx, organization: OrganizationId, server_id: str, keyring: Keyring, *, lock: bool = False) -> McpServer:
    """Raises NotFound."""
    row = tx.execute(_ONE_LOCKED if lock else _ONE, {"of_organization": organization, "of_server": server_id}).first()
    if row is None:
        raise NotFound("MCPServer", server_id[:80])
    return _from_row(row, keyring)


def anybodys(tx: Tx, server_id: str, keyring: Keyring) -> McpServer | None:
    """A server of any organisation, for work that no caller asked for."""
    row = tx.execute(_ANYBODYS, {"of_server": server_id}).first()
    return None if row is None else _from_row(row, keyring)


def by_name(tx: Tx, organization: OrganizationId, name: str, keyring: Keyring) -> McpServer:
    """Raises NotFound."""
    row = tx.execute(_NAMED, {"of_organization": organization, "of_name": name}).first()
    if row is None:
        raise NotFound("MCPServer", name[:80])
    return _from_row(row, keyring)


def select(tx: Tx, organization: OrganizationId, keyring: Keyring) -> list[McpServer]:
    """All servers, oldest first."""
    return [_from_row(row, keyring) for row in tx.execute(_ALL, {"of_organization": organization})]


def insert(tx: Tx, server: McpServer, sealing: Sealing) -> None:
    """Raises Conflict when the name is taken, and SecretUnreadable when there is no key."""
    row = _to_row(server, _sealed(tx, server, sealing))
    try:
        tx.execute(_INSERT, row)
    except IntegrityError as error:
        raise _name_conflict(server.server_name) from error


def replace(tx: Tx, server: McpServer, sealing: Sealing) -> None:
    """Writes every field of an existing server.

    Raises Conflict when its new name is taken, and SecretUnreadable when there is no key.
    """
    taken = tx.execute(_NAMED, {"of_organization": server.organization_id, "of_name": server.server_name}).first()
    if taken is not None and taken.id != server.id:
        raise _name_conflict(server.server_name)
    row = _to_row(server, _sealed(tx, server, sealing))
    tx.execute(_UPDATE, {f"new_{column.name}": row[column.name] for column in _CHANGEABLE} | {"of_server": server.id})


def delete(tx: Tx, organization: OrganizationId, server_id: str) -> None:
    """Raises NotFound."""
    row = tx.execute(_ONE_LOCKED, {"of_organization": organization, "of_server": server_id}).first()
    if row is None:
        raise NotFound("MCPServer", server_id[:80])
    tx.execute(_DELETE, {"of_server": row.id})


def _name_conflict(name: str) -> Conflict:
    return Conflict(f"an MCP server with the name '{name}' already exists; update that one or use another name")
