"""All connections of a server to MCP servers, by server. One that was never used costs nothing."""

import asyncio
from collections.abc import Callable
from functools import partial

from kelpie.core.errors import McpError, McpFault
from kelpie.core.tools.mcp_servers import McpServer, McpServerType
from kelpie.mcp.connections.breaker import Breaker
from kelpie.mcp.connections.connection import Connection, ConnectionReport, Dial
from kelpie.mcp.connections.limits import ConnectionLimits
from kelpie.world.clock import Clock

ToolsChanged = Callable[[McpServer], None]


class ConnectionPool:
    """`tools_changed` is called with a server that says that its tools have changed."""

    def __init__(self, dial: Dial, limits: ConnectionLimits, clock: Clock) -> None:
        self.limits = limits
        self.tools_changed: ToolsChanged = _nobody
        self._dial = dial
        self._clock = clock
        self._connections: dict[str, Connection] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def get(self, server: McpServer) -> Connection:
        """The connection of a server, by its configuration of now. Raises McpError when too many programs run."""
        found = self._connections.get(server.id)
        if found is not None and found.server.config == server.config:
            found.server = server
            return self._with_room(found)
        if found is not None:
            self.drop(server.id)
        changed = partial(self._changed, server)
        made = Connection(server, self._dial, self.limits, self._now_s, changed)
        self._connections[server.id] = made
        return self._with_room(made)

    def report(self, server: McpServer) -> ConnectionReport:
        """The state of a server's connection."""
        found = self._connections.get(server.id)
        if found is not None:
            return found.report()
        return ConnectionReport(False, Breaker(1, 1.0, self._now_s).report())

    def drop(self, server_id: str) -> None:
        """Closes the connection of a server that was changed or deleted."""
        if (found := self._connections.pop(server_id, None)) is not None:
            task = asyncio.ensure_future(found.close())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Closes all of them."""
        found, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(connection.close() for connection in found), *self._leaving)

    def _with_room(self, wanted: Connection) -> Connection:
        """Closes the program that is unused for longest, if one more would be too many. Raises McpError."""
        if not _is_program(wanted) or _has_program(wanted):
            return wanted
        running = [each for each in self._connections.values() if _is_program(each) and _has_program(each)]
        if len(running) < self.limits.processes_max:
            return wanted
        unused = [each for each in running if not each.in_use]
        if not unused:
            raise McpError(
                McpFault.unreachable,
                f"MCP server '{wanted.server.server_name}': {len(running)} stdio servers are running calls, which is "
                "the limit (mcp.processes_max); try again later",
            )
        self.drop(min(unused, key=lambda each: each.used_at).server.id)
        return wanted

    def _changed(self, server: McpServer) -> None:
        found = self._connections.get(server.id)
        self.tools_changed(server if found is None else found.server)

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9


def _is_program(connection: Connection) -> bool:
    return connection.server.config.server_type is McpServerType.stdio


def _has_program(connection: Connection) -> bool:
    """True if its program runs, or a call is about to start it."""
    return connection.connected or connection.in_use


def _nobody(server: McpServer) -> None:
    """Nobody follows the tools of servers."""
