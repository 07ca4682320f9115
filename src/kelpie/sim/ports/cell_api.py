"""The door of a simulated cell to our API: code inside connects to it, and the node that holds the cell answers.

What answers is the gate of a real cell and behind it the real application. Once the door is shut nobody gets through,
and who was talking is cut off, as with a socket.
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
    """The listener of one cell; it is shut until somebody answers it."""

    def __init__(self, network: Network, node: Node, name: str) -> None:
        self._network = network
        self._node = node
        self._name = name
        self._server: _Answering | None = None
        self.shut_s: float | None = None  # when its last answer was over

    def client(self, faults: Faults) -> SimClient:
        """For the code inside."""
        return SimClient(self._name, lambda: self._server, faults)

    def answer(self, app: App) -> None:
        """Lets this application answer who connects."""
        self._server = _Answering(self._network, self._node, app, PLACE)

    def close(self) -> None:
        """Nobody gets in any more, and who was in is cut off."""
        server, self._server = self._server, None
        if server is not None:
            server.cut()

    def over(self) -> None:
        self.shut_s = self._network.loop.time()


class _Answering(Server):
    """A server that knows whom it talks to."""

    def __init__(self, network: Network, node: Node, app: App, place: str) -> None:
        super().__init__(network, node, app, place)
        self._accepted: list[Connection] = []

    def accept(self, client: str) -> Connection:
        self._accepted.append(connection := super().accept(client))
        return connection

    def cut(self) -> None:
        for connection in self._accepted:
            connection.reset()


class _Serving:
    def __init__(self, door: SimCellApi, api: CellApi) -> None:
        self._door = door
        self._api = api

    async def close(self) -> None:
        self._door.close()
        await self._api.end()
        self._door.over()


def serve_doors(app: App) -> Callable[[Listener, str], Awaitable[ServedListener]]:
    """What serves our API to simulated cells, in place of `CellServer.serve`."""

    async def serve(listener: Listener, passport: str) -> ServedListener:
        assert isinstance(listener, SimCellApi)
        listener.answer(api := CellApi(app, passport))  # pyright: ignore[reportArgumentType]
        return _Serving(listener, api)

    return serve
