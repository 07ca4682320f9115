"""The way out of a cell. A cell makes listening sockets on the loopback of its own, empty network and hands them to us:
a socket stays in the network it was made in, so whoever inside connects to one of them is answered by our process, and
there is nothing else to connect to. What is answered is decided here, never in the cell.
"""

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kelpie.core.errors import InvalidInput, ToolError
from kelpie.core.tools.confinement import API_PORT, PROXY_PORT
from kelpie.world.cells.port import Listener
from kelpie.world.egress.proxy import EgressProxy

__all__ = ["API_PORT", "PROXY_PORT", "Broker", "Listener", "LocalBroker", "ServeApi", "ServedListener", "socket_of"]

_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
# How programs find the proxy.
PROXY_ENV = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), _PROXY),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost"),
}


class ServedListener(Protocol):
    """A listener that is answered."""

    async def close(self) -> None:
        """Ends the listener and every connection that came through it."""
        ...


ServeApi = Callable[[Listener, str], Awaitable[ServedListener]]


def socket_of(listener: Listener) -> socket.socket:
    """The socket of a real cell; the simulation answers its own doors."""
    assert isinstance(listener, socket.socket)
    return listener


class Broker(Protocol):
    """Answers listeners of cells; it owns them from then on."""

    async def serve_api(self, listener: Listener, passport: str) -> ServedListener:
        """Lets requests that show this passport, and no others, reach our API."""
        ...

    async def serve_proxy(self, listener: Listener, hosts: Sequence[str]) -> ServedListener:
        """Lets HTTP(S) reach these hosts, and no others. Raises ToolError for what is no host."""
        ...


class LocalBroker:
    """The broker of a server. `api` is set by whoever serves our API; without it, the way to the API is closed."""

    def __init__(self, *, private: bool = False) -> None:
        self.api: ServeApi | None = None
        self._private = private

    async def serve_api(self, listener: Listener, passport: str) -> ServedListener:
        return _ClosedListener(listener) if self.api is None else await self.api(listener, passport)

    async def serve_proxy(self, listener: Listener, hosts: Sequence[str]) -> ServedListener:
        try:
            proxy = EgressProxy(hosts, private=self._private)
        except InvalidInput as error:
            listener.close()
            raise ToolError(f"The tool was not run: {error}") from error
        return await proxy.serve(socket_of(listener))


class _ClosedListener:
    """Nobody answers: who connects is turned away."""

    def __init__(self, listener: Listener) -> None:
        listener.close()

    async def close(self) -> None:
        return
