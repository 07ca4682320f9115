"""All traffic that leaves the process goes through a transport made here."""

import importlib
from typing import Protocol

import httpx


class Http(Protocol):
    def transport(self, *, public: bool = False) -> httpx.AsyncBaseTransport:
        """A transport for one destination; whoever takes it closes it.

        A `public` one connects to addresses of the internet only, whatever a name leads to: for targets that somebody
        outside has named. It raises httpx.ConnectError for all others.
        """
        ...


class NetworkHttp:
    """Real sockets, with a bound on connections. Connect retries are the caller's business."""

    def __init__(self, connections_max: int = 1000) -> None:
        self._connections_max = connections_max

    def transport(self, *, public: bool = False) -> httpx.AsyncBaseTransport:
        # Imported with the first call to a provider: a server that only runs the demo model never needs it.
        network = importlib.import_module("kelpie.world.http.aiohttp_transport")
        return network.NetworkTransport(self._connections_max, public=public)
