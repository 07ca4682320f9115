"""What tests of connections build on: records of servers, and a pool without a database behind it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kelpie.core.ids import DEFAULT_ORGANIZATION, McpServerId, OrganizationId
from kelpie.core.tools.mcp_servers import McpConfig, McpServer, McpServerType
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.mcp.connections.dialing import Dialer
from kelpie.mcp.connections.limits import ConnectionLimits
from kelpie.mcp.connections.pool import ConnectionPool
from kelpie.mcp.connections.stdio_launcher import StdioLauncher
from kelpie.world.clock import SystemClock
from kelpie.world.http.port import NetworkHttp
from tests.mcp.plain_sandbox import PlainSandbox

_NUMBER = "mcp_server-00000000-0000-4000-8000-{:012d}"


def server_of(
    config: McpConfig, name: str = "test", number: int = 1, organization: OrganizationId = DEFAULT_ORGANIZATION
) -> McpServer:
    return McpServer(McpServerId(_NUMBER.format(number)), name, config, 0, 0, organization_id=organization)


def http_config(url: str) -> McpConfig:
    return McpConfig(McpServerType.streamable_http, server_url=url)


@asynccontextmanager
async def pool_of(
    sandbox: PlainSandbox | None = None, organizations: int = 1, **limits: float
) -> AsyncIterator[ConnectionPool]:
    launcher = StdioLauncher(sandbox, None)  # pyright: ignore[reportArgumentType]
    given = ConnectionLimits(**limits)  # pyright: ignore[reportArgumentType]
    share = OrganizationShare(organizations=organizations)
    pool = ConnectionPool(Dialer(NetworkHttp(), launcher, private=True), given, SystemClock(), share)
    try:
        yield pool
    finally:
        await pool.close()
