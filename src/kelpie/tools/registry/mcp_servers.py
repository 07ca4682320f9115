"""MCP servers: registered, read, changed and removed, with the tools that they offer.

A server that cannot be reached can be registered: its tools come with a later refresh. Nothing connects to a server
before it is registered, refreshed, or one of its tools is called.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import Conflict, InvalidInput, McpError, NotFound, StorageError
from kelpie.core.ids import AgentId, McpServerId
from kelpie.core.tools.egress_rules import entries
from kelpie.core.tools.mcp_servers import AUTHORIZATION, McpConfig, McpServer, McpServerType, check_address
from kelpie.core.tools.tools import Tool
from kelpie.mcp.client.answers import RemoteTool
from kelpie.mcp.client.session import Session
from kelpie.mcp.connections.connection import TRIES_MAX, ConnectionReport
from kelpie.mcp.connections.packaged_commands import packaged
from kelpie.mcp.connections.pool import ConnectionPool
from kelpie.mcp.connections.stdio_launcher import granted
from kelpie.observe import logs
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.tools import mcp_oauth, mcp_tools
from kelpie.storage.tools import mcp_servers as rows
from kelpie.storage.tools.mcp_tools import ServerTool
from kelpie.tools.mcp import tool_sync
from kelpie.tools.mcp.logins import Step
from kelpie.tools.mcp.tool_sync import SyncResult
from kelpie.world.database import Tx
from kelpie.world.world import World

NAME_CHARS_MAX = 256

Change = Callable[[McpConfig], McpConfig]

_log = logs.get("mcp")


@dataclass(frozen=True, slots=True)
class ServerRules:
    """What the operator allows in the configuration of a server."""

    private: bool = False
    directories: tuple[str, ...] = ()


class McpServers:
    """MCP servers of the caller's organization. `reload_agents` is called with the agents whose tools have changed."""

    def __init__(
        self,
        world: World,
        pool: ConnectionPool,
        rules: ServerRules,
        reload_agents: Callable[[Iterable[AgentId]], None],
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._pool = pool
        self._rules = rules
        self._reload_agents = reload_agents
        self._user = caller.user_id
        self._organization = caller.organization_id

    async def create(self, name: str, config: McpConfig) -> McpServer:
        """Registers a server and reads its tools, if it can be reached. Raises InvalidInput, or Conflict when the name
        is taken."""
        return (await self.add(name, config))[0]

    async def add(self, name: str, config: McpConfig) -> tuple[McpServer, list[McpServer]]:
        """The same, and returns all servers, oldest first."""
        server, servers = await self.register(name, config)
        await self.try_refresh(server)
        return server, servers

    async def register(self, name: str, config: McpConfig) -> tuple[McpServer, list[McpServer]]:
        """Registers a server without reading its tools; returns it, and all servers, oldest first."""
        server = self.prepared(name, config)
        sealing = self._sealing()

        def write(tx: Tx) -> list[McpServer]:
            rows.insert(tx, server, sealing)
            return rows.select(tx, self._organization, self._world.keyring)

        return server, await self._world.database.transact(write)

    def prepared(self, name: str, config: McpConfig) -> McpServer:
        """The record of a new server, checked but not registered. Raises InvalidInput."""
        now = self._world.clock.now()
        return McpServer(
            id=self._world.ids.new(McpServerId),
            server_name=_checked_name(name),
            config=self._checked(config),
            created_at=now,
            updated_at=now,
            organization_id=self._organization,
            created_by_id=self._user,
            last_updated_by_id=self._user,
        )

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

        def write(tx: Tx) -> tuple[McpServer, tuple[AgentId, ...]]:
            before = find(tx)
            after = replace(
                before,
                server_name=before.server_name if name is None else _checked_name(name),
                config=self._checked(change(before.config)),
                updated_at=now,
                last_updated_by_id=self._user,
                unreadable={},
            )
            _check_replaced(before, after)
            rows.replace(tx, after, sealing)
            if after.config.server_url != before.config.server_url:
                mcp_oauth.delete(tx, after.id)  # those tokens are for another server
            return after, tool_sync.rename(tx, after, now) if after.server_name != before.server_name else ()

        after, affected = await self._world.database.transact(write)
        self._reload_agents(affected)
        return after

    async def delete(self, server_id: str) -> None:
        """Deletes a server and its tools, also from its agents. Raises NotFound."""

        def write(tx: Tx) -> tuple[AgentId, ...]:
            rows.get(tx, self._organization, server_id, self._world.keyring, lock=True)
            affected = tool_sync.remove(tx, server_id)
            rows.delete(tx, self._organization, server_id)
            return affected

        affected = await self._world.database.transact(write)
        self._pool.drop(server_id)
        self._reload_agents(affected)

    async def delete_by_name(self, name: str) -> list[McpServer]:
        """Deletes it and returns the remaining servers, oldest first. Raises NotFound."""
        await self.delete((await self.by_name(name)).id)
        return await self.all()

    # --- tools -------------------------------------------------------------------------------------------------------

    async def tools(self, server_id: str) -> list[ServerTool]:
        """The stored tools of a server; none for an unknown one."""
        found = await self._world.database.read(lambda tx: mcp_tools.of_server(tx, server_id))
        return [each for each in found if each.tool.organization_id == self._organization]

    async def tool(self, server_id: str, tool_id: str) -> Tool:
        """Raises NotFound."""
        for each in await self.tools(server_id):
            if each.tool.id == tool_id:
                return each.tool
        raise NotFound("Tool", tool_id[:80])

    async def tool_named(self, server_name: str, name: str) -> Tool:
        """The tool of a server by its name on the server, or its own. Raises NotFound."""
        server = await self.by_name(server_name)
        for each in await self.tools(server.id):
            if name in (each.remote_name, each.tool.name):
                return each.tool
        raise NotFound(f"Tool '{name[:80]}' of the MCP server", server_name[:80])

    async def refresh(self, server: McpServer, tries: int = TRIES_MAX, *, upkeep: bool = False) -> SyncResult:
        """Reads the tools of a server and stores what changed. Raises McpError, NotFound if the server was deleted, and
        Conflict if its configuration was changed meanwhile."""
        connection = await self._pool.get(server)
        async with connection.listing:  # of two lists, the one that was read last is stored last
            remote = await connection.use(_tools, tries=tries, upkeep=upkeep)
            listed, refused = tool_sync.ready(remote, [self._world.ids.uuid() for _ in remote])
            now = self._world.clock.now()
            user = self._user

            def write(tx: Tx) -> tuple[SyncResult, tuple[AgentId, ...]]:
                current = rows.get(tx, self._organization, server.id, self._world.keyring, lock=True)
                if current.config != server.config:  # these are the tools of another server
                    raise Conflict(f"MCP server '{current.server_name}' was changed meanwhile; read its tools again.")
                return tool_sync.store(tx, current, listed, refused, now, user)

            try:
                result, affected = await self._world.database.transact(write)
            except StorageError:
                if not upkeep:  # what was read is newer than what is stored
                    self._pool.tools_changed(server)
                raise
        self._reload_agents(affected)
        if refused:
            _log.warning(
                "mcp_tools_refused",
                "Tools of an MCP server cannot be used",
                server=server.server_name,
                tools={name[:80]: reason for name, reason in sorted(refused.items())[:20]},
            )
        return result

    async def try_refresh(self, server: McpServer) -> SyncResult | None:
        """The same for a server that may be out of reach; None if it is."""
        try:
            return await self.refresh(server, tries=1)
        except (McpError, StorageError) as error:  # what was stored before stays, and is not told as failed
            _log.warning("mcp_tools_unread", "Tools of an MCP server could not be read", error=str(error))
        except (NotFound, Conflict):
            pass  # it was deleted or changed meanwhile
        return None

    async def look(self, name: str, config: McpConfig) -> list[RemoteTool]:
        """The tools of a server that is not registered. Raises InvalidInput, McpError."""
        now = self._world.clock.now()
        server = McpServer(
            self._world.ids.new(McpServerId), _checked_name(name), self._checked(config), now, now, self._organization
        )
        try:
            connection = await self._pool.get(server)
            return await connection.use(_tools)
        finally:
            self._pool.drop(server.id)

    async def steps(self, name: str, config: McpConfig) -> AsyncGenerator[Step]:
        """The same, step by step. Raises InvalidInput."""
        yield Step("connection_attempt", {"server_name": name})
        try:
            yield Step("success", tools=tuple(await self.look(name, config)))
        except McpError as error:
            yield Step("error", {"message": error.message})

    async def apply(self, wanted: Mapping[str, McpConfig]) -> list[McpServer]:
        """Registers the servers of a file, and changes those that are registered under the same names; returns those
        that are new or changed. Their tools are not read. Raises InvalidInput, StorageError."""
        there = {server.server_name: server for server in await self.all()}
        changed: list[McpServer] = []
        for name, config in wanted.items():
            before = there.get(name)
            if before is None:
                changed.append((await self.register(name, config))[0])
            elif before.config != self._checked(config):
                changed.append(await self.update(before.id, None, lambda _, new=config: new))
        return changed

    def report(self, server: McpServer) -> ConnectionReport:
        """The state of the connection to a server."""
        return self._pool.report(server)

    async def all(self) -> list[McpServer]:
        """All of them, oldest first."""
        return await self._world.database.read(lambda tx: rows.select(tx, self._organization, self._world.keyring))

    def _sealing(self) -> Sealing:
        return Sealing(self._world.keyring, self._world.ids.secret())

    def _checked(self, config: McpConfig) -> McpConfig:
        """The configuration with the fields of its kind, and none of the other kind. Raises InvalidInput."""
        entries(config.options.egress, "config.kelpie_options.egress")
        if config.server_type is McpServerType.stdio:
            if not config.command or not config.command.strip():
                raise InvalidInput("config.command", "is empty; a stdio server needs a command")
            packaged(config.command, config.args)
            granted(config, self._rules.directories)
            return replace(config, server_url=None, auth_header=None, token=None, custom_headers=None)
        if not config.server_url:
            raise InvalidInput("config.server_url", "is empty; the server needs a URL")
        check_address("config.server_url", config.server_url, private=self._rules.private)
        header = config.auth_header or (AUTHORIZATION if config.token else None)
        options = replace(config.options, egress=(), memory_mb=None, directories=())
        return replace(config, command=None, args=(), env=None, auth_header=header, options=options)


def _check_replaced(before: McpServer, after: McpServer) -> None:
    """Raises Conflict for a change that would drop a secret because it cannot be decrypted."""
    for name, reason in sorted(before.unreadable.items()):
        if getattr(after.config, name) is None:
            raise Conflict(f"{name}: {reason} This request would remove it; set it in this request.")


def _checked_name(name: str) -> str:
    if not name.strip() or len(name) > NAME_CHARS_MAX:
        raise InvalidInput("server_name", f"must have 1 to {NAME_CHARS_MAX} characters")
    return name


async def _tools(session: Session) -> list[RemoteTool]:
    return await session.tools()
