"""The node's listening socket: runs the ASGI application on simulated connections as uvicorn would run it on real ones.

One task per request, in the node's context. `send` waits while the client does not read; after a disconnect it does
nothing and `receive` returns `http.disconnect`, which is all that an application learns about a client that has gone.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.requests import ClientDisconnect

from kelpie.sim.loop.node import Node
from kelpie.sim.network.network import Connection, ConnectionLost, End, Network

PLACE = "network.client"

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RequestHead:
    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]
    client: str


@dataclass(frozen=True, slots=True)
class ResponseHead:
    status: int
    headers: tuple[tuple[bytes, bytes], ...]


class Server:
    """The listening socket of one node."""

    def __init__(self, network: Network, node: Node, app: App, place: str = PLACE) -> None:
        self._network = network
        self._app = app
        self._place = place  # where the faults of its connections are
        self.node = node

    def accept(self, client: str) -> Connection:
        """A new connection, and the task that serves it."""
        connection = self._network.connect(self.node, f"{client}-{self.node.name}", self._place)
        serving = _Cycle(self._network, connection, self._app).run()
        self._network.loop.create_task(serving, name="request", context=self.node.context())
        return connection


class _Cycle:
    """One request and its response."""

    def __init__(self, network: Network, connection: Connection, app: App) -> None:
        self._loop = network.loop
        self._up = connection.up
        self._down = connection.down
        self._app = app
        self._gone = False
        self._started = False
        self._complete = False

    async def run(self) -> None:
        try:
            head: RequestHead | End = await self._up.receive()
        except ConnectionLost:
            return
        if isinstance(head, End):
            return
        try:
            await self._app(_scope(head), self._receive, self._send)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - uvicorn logs it and lives on; here it is part of the report
            self._loop.report_unhandled(f"{head.method} {head.target}", error)
        if not self._started and not self._gone:
            await self._send({"type": "http.response.start", "status": 500, "headers": []})
            await self._send({"type": "http.response.body", "body": b"Internal Server Error"})
        elif not self._complete:
            self._down.put(End(clean=False))

    async def _receive(self) -> Message:
        if not self._gone and not self._complete:
            try:
                packet = await self._up.receive()
            except ConnectionLost:
                self._gone = True
            else:
                if isinstance(packet, tuple):
                    return {"type": "http.request", "body": packet[0], "more_body": packet[1]}
                self._gone = not self._complete
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._gone:
            return
        if self._complete:
            raise RuntimeError("the response is already complete")
        try:
            if message["type"] == "http.response.start":
                if self._started:
                    raise RuntimeError("the response has already started")
                self._started = True
                await self._down.send(ResponseHead(message["status"], tuple(message.get("headers", ()))))
            else:
                await self._send_body(message)
        except ConnectionLost:
            self._gone = True

    async def _send_body(self, message: Message) -> None:
        if not self._started:
            raise RuntimeError("a body came before the head of the response")
        if body := message.get("body", b""):
            await self._down.send(bytes(body))
        if not message.get("more_body", False):
            self._complete = True
            self._down.put(End())
            self._up.end_here()


def _scope(head: RequestHead) -> Message:
    path, _, query = head.target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": head.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": list(head.headers),
        "client": (head.client, 1),
        "server": ("kelpie", 80),
        "state": {},
    }
