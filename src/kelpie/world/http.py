"""All traffic that leaves the process goes through a transport made here."""

from typing import Protocol

import httpx


class Http(Protocol):
    def transport(self) -> httpx.AsyncBaseTransport:
        """A transport for an `httpx.AsyncClient`; the client that takes it closes it."""
        ...


class NetworkHttp:
    """Real sockets, with bounds on connections. Connect retries are the caller's business."""

    def __init__(self, connections_max: int = 1000, keepalive_max: int = 200) -> None:
        self._limits = httpx.Limits(
            max_connections=connections_max, max_keepalive_connections=keepalive_max, keepalive_expiry=30
        )

    def transport(self) -> httpx.AsyncBaseTransport:
        return httpx.AsyncHTTPTransport(limits=self._limits, retries=0)
