"""From the record of a server to a transport: its kind, its address or program, and what authorizes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kelpie.core.errors import InvalidInput, McpError, McpFault
from kelpie.core.tools.mcp_servers import AUTHORIZATION, McpConfig, McpServer, McpServerType, check_address
from kelpie.mcp.connections.connection import Authorization, Dialed
from kelpie.mcp.connections.limits import ConnectionLimits
from kelpie.mcp.connections.stdio_launcher import StdioLauncher
from kelpie.mcp.transports.http_exchange import HttpExchange
from kelpie.mcp.transports.legacy_sse import LegacySseTransport
from kelpie.mcp.transports.port import Transport
from kelpie.mcp.transports.stdio import StdioTransport
from kelpie.mcp.transports.streamable_http import StreamableHttpTransport
from kelpie.world.http.port import Http

Authorizer = Callable[[McpServer], Authorization]


class FixedHeaders:
    """The token and the headers of a configuration."""

    def __init__(self, config: McpConfig) -> None:
        self._headers = fixed_headers(config)

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    async def renew(self, challenge: str) -> bool:
        return False

    def secrets(self) -> tuple[str, ...]:
        return ()


def fixed_headers(config: McpConfig) -> dict[str, str]:
    headers = {name.lower(): value for name, value in (config.custom_headers or {}).items()}
    if config.shown_token:
        headers[(config.auth_header or AUTHORIZATION).lower()] = config.shown_token
    return headers


@dataclass(frozen=True, slots=True)
class Dialer:
    """Makes transports. `private` allows addresses that are not public; `authorize` finds OAuth tokens."""

    http: Http
    launcher: StdioLauncher
    private: bool = False
    authorize: Authorizer | None = None

    def __call__(self, server: McpServer, limits: ConnectionLimits) -> Dialed:
        """Raises McpError for a record that cannot be used."""
        _check_readable(server)
        if server.config.server_type is McpServerType.stdio:
            launch = self.launcher.launch(server)
            transport = StdioTransport(launch.start, limits.transport)
            return Dialed(transport, FixedHeaders(server.config), launch.prepare, launch.release)
        exchange = HttpExchange(self.http, limits.transport, public=not self.private)
        authorization = self._authorization(server)
        return Dialed(self._over_http(server, exchange, authorization), authorization)

    def _authorization(self, server: McpServer) -> Authorization:
        if server.config.token is not None or self.authorize is None:
            return FixedHeaders(server.config)
        return self.authorize(server)

    def _over_http(self, server: McpServer, exchange: HttpExchange, authorization: Authorization) -> Transport:
        url = server.config.server_url or ""
        try:
            check_address("server_url", url, private=self.private)
        except InvalidInput as error:
            raise McpError(McpFault.unreachable, str(error)) from error
        kind = LegacySseTransport if server.config.server_type is McpServerType.sse else StreamableHttpTransport
        return kind(url, exchange, authorization.headers)


def _check_readable(server: McpServer) -> None:
    if server.unreadable:
        raise McpError(McpFault.unauthorized, " ".join(server.unreadable.values()))
