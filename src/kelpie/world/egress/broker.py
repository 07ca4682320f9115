"""Network access of a cell. A cell makes listening sockets on the loopback of its own, empty network and sends them to
the server: a socket stays in the network it was made in, so the server process answers every connection to it from
inside, and there is nothing else to connect to. The server decides what to answer, never the cell.
"""

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kelpie.core.errors import InvalidInput, ToolError
from kelpie.core.tools.confinement import API_PORT, PROXY_PORT
from kelpie.core.tools.egress_rules import entries
from kelpie.world.cells.port import Listener
from kelpie.world.lazy_imports import lazily

with lazily:
    from kelpie.world.egress import proxy as _proxy

__all__ = ["API_PORT", "PROXY_PORT", "Broker", "Listener", "LocalBroker", "ServeApi", "ServedListener", "socket_of"]

_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
# Environment variables by which programs find the proxy.
PROXY_ENV = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), _PROXY),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost"),
}


class ServedListener(Protocol):
    """A listener that the server answers."""

    async def close(self) -> None:
        """Closes the listener and every connection that came through it."""
        ...


ServeApi = Callable[[Listener, str], Awaitable[ServedListener]]


def socket_of(listener: Listener) -> socket.socket:
    """The socket of a real cell; the simulation answers its own sockets."""
    assert isinstance(listener, socket.socket)
    return listener


class Broker(Protocol):
    """Answers listeners of cells, and owns them from then on."""

    async def serve_api(self, listener: Listener, passport: str) -> ServedListener:
        """Lets requests with this passport, and no others, reach the API."""
        ...

    async def serve_proxy(self, listener: Listener, hosts: Sequence[str]) -> ServedListener:
        """Lets HTTP(S) requests reach these hosts, and no others. Raises ToolError for an invalid host."""
        ...


class LocalBroker:
    """The broker of a server. The HTTP server sets `api`; without it, cells cannot reach the API. `permitted` are the
    only hosts that the operator permits; without any, all."""

    def __init__(self, *, private: bool = False, permitted: Sequence[str] = ()) -> None:
        self.api: ServeApi | None = None
        self._private = private
        self._permitted = entries(permitted)

    async def serve_api(self, listener: Listener, passport: str) -> ServedListener:
        return _ClosedListener(listener) if self.api is None else await self.api(listener, passport)

    async def serve_proxy(self, listener: Listener, hosts: Sequence[str]) -> ServedListener:
        try:
            proxy = _proxy.EgressProxy(hosts, private=self._private, permitted=self._permitted)
        except InvalidInput as error:
            listener.close()
            raise ToolError(f"The tool was not run: {error}") from error
        return await proxy.serve(socket_of(listener))


class _ClosedListener:
    """A listener that refuses every connection."""

    def __init__(self, listener: Listener) -> None:
        listener.close()

    async def close(self) -> None:
        return
