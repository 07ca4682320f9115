"""MCP servers: registered, read, changed and removed as records.

Nothing here starts a process or opens a connection; a record only describes how to do that.
"""

from collections.abc import Callable
from dataclasses import replace

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import Conflict, InvalidInput
from kelpie.core.ids import McpServerId
from kelpie.core.tools.mcp_servers import AUTHORIZATION, McpConfig, McpServer, McpServerType, check_address
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.tools import mcp_servers as rows
from kelpie.world.database import Tx
from kelpie.world.world import World

NAME_CHARS_MAX = 256

Change = Callable[[McpConfig], McpConfig]


class McpServers:
    """MCP servers of the caller's organization."""

    def __init__(self, world: World, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._user = caller.user_id
        self._organization = caller.organization_id

    async def create(self, name: str, config: McpConfig) -> McpServer:
        """Raises InvalidInput, or Conflict when the name is taken."""
        return (await self.add(name, config))[0]

    async def add(self, name: str, config: McpConfig) -> tuple[McpServer, list[McpServer]]:
        """The same, and returns all servers, oldest first."""
        now = self._world.clock.now()
        server = McpServer(
            id=self._world.ids.new(McpServerId),
            server_name=_checked_name(name),
            config=_checked(config),
            created_at=now,
            updated_at=now,
            organization_id=self._organization,
            created_by_id=self._user,
            last_updated_by_id=self._user,
        )

        sealing = self._sealing()

        def write(tx: Tx) -> list[McpServer]:
            rows.insert(tx, server, sealing)
            return rows.select(tx, self._organization, self._world.keyring)

        return server, await self._world.database.transact(write)

    async def get(self, server_id: str) -> McpServer:
        """Raises NotFound."""
        return await self._world.database.read(
            lambda tx: rows.get(tx, self._organization, server_id, self._world.keyring)
        )

    async def by_name(self, name: str) -> McpServer:
        """Raises NotFound."""
        return await self._world.database.read(
            lambda tx: rows.by_name(tx, self._organization, name, self._world.keyring)
        )

    async def update(self, server_id: str, name: str | None, change: Change) -> McpServer:
        """Gives the server a new name, if one is given, and the configuration that `change` makes of its own.

        Raises NotFound, InvalidInput, or Conflict when the name is taken.
        """
        keyring = self._world.keyring
        return await self._update(
            lambda tx: rows.get(tx, self._organization, server_id, keyring, lock=True), name, change
        )

    async def update_by_name(self, known_as: str, name: str | None, change: Change) -> McpServer:
        """The same, for the server with this name."""
        keyring = self._world.keyring
        return await self._update(lambda tx: rows.by_name(tx, self._organization, known_as, keyring), name, change)

    async def _update(self, find: Callable[[Tx], McpServer], name: str | None, change: Change) -> McpServer:
        now, sealing = self._world.clock.now(), self._sealing()

        def write(tx: Tx) -> McpServer:
            before = find(tx)
            after = replace(
                before,
                server_name=before.server_name if name is None else _checked_name(name),
                config=_checked(change(before.config)),
                updated_at=now,
                last_updated_by_id=self._user,
                unreadable={},
            )
            _check_replaced(before, after)
            rows.replace(tx, after, sealing)
            return after

        return await self._world.database.transact(write)

    async def delete(self, server_id: str) -> None:
        """Raises NotFound."""
        await self._world.database.transact(lambda tx: rows.delete(tx, self._organization, server_id))

    async def delete_by_name(self, name: str) -> list[McpServer]:
        """Deletes it and returns the remaining servers, oldest first. Raises NotFound."""
        keyring = self._world.keyring

        def write(tx: Tx) -> list[McpServer]:
            rows.delete(tx, self._organization, rows.by_name(tx, self._organization, name, keyring).id)
            return rows.select(tx, self._organization, keyring)

        return await self._world.database.transact(write)

    async def all(self) -> list[McpServer]:
        """All of them, oldest first."""
        return await self._world.database.read(lambda tx: rows.select(tx, self._organization, self._world.keyring))

    def _sealing(self) -> Sealing:
        return Sealing(self._world.keyring, self._world.ids.secret())


def _check_replaced(before: McpServer, after: McpServer) -> None:
    """Raises Conflict for a change that would drop a secret because it cannot be decrypted."""
    for name, reason in sorted(before.unreadable.items()):
        if getattr(after.config, name) is None:
            raise Conflict(f"{name}: {reason} This request would remove it; set it in this request.")


def _checked_name(name: str) -> str:
    if not name.strip() or len(name) > NAME_CHARS_MAX:
        raise InvalidInput("server_name", f"must have 1 to {NAME_CHARS_MAX} characters")
    return name


def _checked(config: McpConfig) -> McpConfig:
    """The configuration with the fields of its kind, and none of the other kind."""
    if config.server_type is McpServerType.stdio:
        if not config.command or not config.command.strip():
            raise InvalidInput("config.command", "is empty; a stdio server needs a command")
        return replace(config, server_url=None, auth_header=None, token=None, custom_headers=None)
    if not config.server_url:
        raise InvalidInput("config.server_url", "is empty; the server needs a URL")
    check_address("config.server_url", config.server_url)
    header = config.auth_header or (AUTHORIZATION if config.token else None)
    return replace(config, command=None, args=(), env=None, auth_header=header)
