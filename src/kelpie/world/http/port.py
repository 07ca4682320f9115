"""Port for all outgoing HTTP traffic: every transport is made here."""

import asyncio
from typing import Protocol

import httpx

from kelpie.world.lazy_imports import lazily

with lazily:  # a server that only runs the demo model never needs it
    from kelpie.world.http import aiohttp_transport as _aiohttp_transport


class Http(Protocol):
    def transport(self, *, public: bool = False) -> httpx.AsyncBaseTransport:
        """A transport for one destination; the caller closes it.

        A `public` one connects to public addresses only, whatever a name resolves to: for targets that a client has
        named. It raises httpx.ConnectError for all others.
        """
        ...

    async def listens(self, host: str, port: int) -> bool:
        """Checks whether any program accepts connections there. The caller limits the time."""
        ...


class NetworkHttp:
    """Real sockets, with a bound on connections. The caller retries failed connections."""

    def __init__(self, connections_max: int = 1000) -> None:
        self._connections_max = connections_max

    def transport(self, *, public: bool = False) -> httpx.AsyncBaseTransport:
        return _aiohttp_transport.NetworkTransport(self._connections_max, public=public)

    async def listens(self, host: str, port: int) -> bool:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            return False
        writer.transport.abort()
        return True
