"""The API socket of a simulated cell: code inside connects to it, and the node that holds the cell answers.

Behind it are the passport check of a real cell and the real application. Once the socket is closed no connection is
accepted, and open ones are cut off, as with a real socket.
"""

from collections.abc import Awaitable, Callable

from kelpie.server.edge.cell_listener import CellApi
from kelpie.sim.faults import Faults
from kelpie.sim.loop.node import Node
from kelpie.sim.network.http_client import SimClient
from kelpie.sim.network.http_server import App, Server
from kelpie.sim.network.network import Connection, Network
from kelpie.world.cells.port import Listener
from kelpie.world.egress.broker import ServedListener

PLACE = "cells.door"  # a cell's own loopback, on which nothing is lost or late


class SimCellApi:
    """The listener of one cell; it accepts nothing until a server answers it."""

    def __init__(self, network: Network, node: Node, name: str) -> None:
        self._network = network
        self._node = node
        self._name = name
        self._server: _CellApiServer | None = None
        self.shut_s: float | None = None  # when its last answer was over

    def client(self, faults: Faults) -> SimClient:
        """The client for the code inside."""
        return SimClient(self._name, lambda: self._server, faults)

    def answer(self, app: App) -> None:
        """Lets this application answer connections."""
        self._server = _CellApiServer(self._network, self._node, app, PLACE)

    def close(self) -> None:
        """Refuses new connections and cuts off open ones."""
        server, self._server = self._server, None
        if server is not None:
            server.cut()

    def over(self) -> None:
        self.shut_s = self._network.loop.time()


class _CellApiServer(Server):
    """A server that knows its connections."""

    def __init__(self, network: Network, node: Node, app: App, place: str) -> None:
        super().__init__(network, node, app, place)
        self._accepted: list[Connection] = []

    def accept(self, client: str) -> Connection:
        self._accepted.append(connection := super().accept(client))
        return connection

    def cut(self) -> None:
        for connection in self._accepted:
            connection.reset()


class _CellListener:
    def __init__(self, api_socket: SimCellApi, api: CellApi) -> None:
        self._api_socket = api_socket
        self._api = api

    async def close(self) -> None:
        self._api_socket.close()
        await self._api.end()
        self._api_socket.over()


def serve_cell_sockets(app: App) -> Callable[[Listener, str], Awaitable[ServedListener]]:
    """Serves Kelpie's API to simulated cells, in place of `CellServer.serve`."""

    async def serve(listener: Listener, passport: str) -> ServedListener:
        assert isinstance(listener, SimCellApi)
        listener.answer(api := CellApi(app, passport))  # pyright: ignore[reportArgumentType]
        return _CellListener(listener, api)

    return serve
