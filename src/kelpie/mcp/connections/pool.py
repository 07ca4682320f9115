"""All connections of a server to MCP servers, by server. One that was never used costs nothing."""

import asyncio
from collections.abc import Callable
from functools import partial

from kelpie.core.errors import McpError, McpFault
from kelpie.core.tools.mcp_servers import McpServer, McpServerType
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.mcp.connections.breaker import Breaker
from kelpie.mcp.connections.connection import Connection, ConnectionReport, Dial
from kelpie.mcp.connections.limits import ConnectionLimits
from kelpie.world.clock import Clock

ToolsChanged = Callable[[McpServer], None]


class ConnectionPool:
    """`tools_changed` is called with a server that says that its tools have changed."""

    def __init__(
        self, dial: Dial, limits: ConnectionLimits, clock: Clock, share: OrganizationShare | None = None
    ) -> None:
        self.limits = limits
        self.tools_changed: ToolsChanged = _nobody
        self._dial = dial
        self._clock = clock
        self._share = share or OrganizationShare()
        self._connections: dict[str, Connection] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def get(self, server: McpServer) -> Connection:
        """The connection of a server, by its configuration of now. Raises McpError when too many are in use."""
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
        """Closes the connection that is unused for longest, if one more would be too many. Programs and connections
        over HTTP have a limit each, and an organization that has its share of it closes its own. One that was alone
        may have opened more than its share: it does not run calls on all of them. Raises McpError.
        """
        limit = self.limits.processes_max if _is_program(wanted) else self.limits.connections_max
        others = [each for each in self._connections.values() if _is_program(each) is _is_program(wanted)]
        taken = [each for each in others if _is_open(each)]
        own = [each for each in taken if each.server.organization_id == wanted.server.organization_id]
        busy = sum(each.in_use for each in own if each is not wanted)
        if not self._share.allows(busy, 1, limit - busy):
            raise _full(wanted, busy, limit)
        if _is_open(wanted):
            return wanted
        allowed = self._share.allows(len(own), 1, limit - len(taken))
        if allowed and len(taken) < limit:
            return wanted
        unused = [each for each in (taken if allowed else own) if not each.in_use]
        if not unused:
            raise _full(wanted, len(taken), limit)
        self.drop(min(unused, key=lambda each: each.used_at).server.id)
        return wanted

    def _changed(self, server: McpServer) -> None:
        found = self._connections.get(server.id)
        self.tools_changed(server if found is None else found.server)

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9


def _is_program(connection: Connection) -> bool:
    return connection.server.config.server_type is McpServerType.stdio


def _is_open(connection: Connection) -> bool:
    """True if it has a program or connection, or a call is about to make one."""
    return connection.connected or connection.in_use


def _full(wanted: Connection, taken: int, limit: int) -> McpError:
    if taken < limit:
        reason = "other servers of the organization run calls, and others may use the places that are left"
    elif _is_program(wanted):
        reason = f"{taken} stdio servers are running calls, which is the limit (mcp.processes_max)"
    else:
        reason = f"{taken} connections to MCP servers are running calls, which is the limit"
    return McpError(McpFault.unreachable, f"MCP server '{wanted.server.server_name}': {reason}; try again later")


def _nobody(server: McpServer) -> None:
    """Nobody follows the tools of servers."""
