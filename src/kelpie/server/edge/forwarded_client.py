"""The client behind a trusted proxy, as plain ASGI: its address replaces that of the proxy in the scope.

The connections of a proxy are shared by its clients, so here the requests of a client are counted instead.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from kelpie.core.access.client_addresses import TrustedProxies
from kelpie.server.edge.client_protocol import HealthOnly
from kelpie.server.edge.connection_limits import ConnectionLimits

_HEADER = b"x-forwarded-for"


class ForwardedClient:
    """Puts the address of the client into the scope, or answers 429 when it has too many requests under way."""

    def __init__(self, app: ASGIApp, proxies: TrustedProxies, limits: ConnectionLimits) -> None:
        self._app = app
        self._proxies = proxies
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope["client"][0] if scope.get("client") else ""
        if scope["type"] != "http" or peer not in self._proxies:
            await self._app(scope, receive, send)
            return
        values = [value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER]
        client = self._proxies.client(peer, values)
        with self._limits.request_of(client) as refusal:
            app = self._app if refusal is None else HealthOnly(self._app, refusal)
            await app({**scope, "client": (client, 0)}, receive, send)
