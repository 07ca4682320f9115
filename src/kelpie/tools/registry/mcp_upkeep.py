"""Upkeep of MCP servers: the servers of the operator's file at the start, and tools of servers that say they changed.

Neither may prevent or delay anything: a server that fails is logged, and the others go on.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import KelpieError, NotFound
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.tools.mcp_servers import McpConfig, McpServer
from kelpie.mcp.connections.pool import ConnectionPool
from kelpie.observe import logs
from kelpie.tools.registry.mcp_servers import McpServers, ServerRules
from kelpie.world.world import World

SETTLE_S = 1.0  # between a change and the new list: servers often change several tools in a row
TRIES_MAX = 6  # to read a list that changed; the time between them doubles
AT_ONCE = 4  # servers

_log = logs.get("mcp")

ReadFile = Callable[[], Mapping[str, McpConfig]]


class McpUpkeep:
    def __init__(
        self,
        world: World,
        pool: ConnectionPool,
        rules: ServerRules,
        reload_agents: Callable[[Iterable[AgentId]], None],
    ) -> None:
        self._world = world
        self._pool = pool
        self._rules = rules
        self._reload_agents = reload_agents
        self._changed: dict[str, McpServer] = {}
        self._works: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        pool.tools_changed = self.refresh_later

    async def load(self, read_file: ReadFile) -> None:
        """Registers the servers of the operator's file, and reads the tools of new and changed ones afterwards."""
        try:
            wanted = read_file()
            for server in await self._servers(DEFAULT_CALLER.organization_id).apply(wanted):
                self.refresh_later(server)
        except KelpieError as error:
            _log.error("mcp_file_unusable", "MCP servers of mcp.file could not be registered", error=str(error))

    def refresh_later(self, server: McpServer) -> None:
        """Reads the tools of a server again, soon and in the background; more than once if that fails."""
        self._changed[server.id] = server
        if server.id not in self._works:
            self._works[server.id] = asyncio.create_task(self._follow(server.id))

    async def close(self) -> None:
        works = list(self._works.values())
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    async def _follow(self, server_id: str) -> None:
        try:
            await self._read_until_current(server_id)
        finally:  # here and not in a callback of the task: a change between its end and the callback would be lost
            self._works.pop(server_id, None)

    async def _read_until_current(self, server_id: str) -> None:
        """Reads the tools of one server until they are read after its last change."""
        failures = 0
        while server_id in self._changed:
            await asyncio.sleep(SETTLE_S * 2 ** min(failures, TRIES_MAX))
            async with self._room:
                server = self._changed.pop(server_id)
                try:
                    await self._refresh(server)
                    failures = 0
                except NotFound:
                    self._changed.pop(server_id, None)  # it was deleted
                    return
                except KelpieError as error:
                    _log.warning("mcp_tools_unread", "Tools of an MCP server could not be read", error=str(error))
                    failures += 1
                    if failures < TRIES_MAX:
                        self._changed.setdefault(server_id, server)

    async def _refresh(self, server: McpServer) -> None:
        servers = self._servers(server.organization_id)
        current = await servers.get(server.id)  # it may have been changed since: the old address says nothing about it
        result = await servers.refresh(current, tries=1, upkeep=True)
        if result.added or result.updated or result.deleted:
            _log.info(
                "mcp_tools_changed",
                "Tools of an MCP server changed",
                server=server.server_name,
                added=len(result.added),
                updated=len(result.updated),
                deleted=len(result.deleted),
            )

    def _servers(self, organization: OrganizationId) -> McpServers:
        caller = Caller(organization_id=organization)
        return McpServers(self._world, self._pool, self._rules, self._reload_agents, caller)
