"""Clients of the simulated server: plain requests and streams over a connection that can be slow, cut, or abandoned.

httpx's ASGITransport collects the whole body before its caller sees it, which hides streams and dropped clients; this
one passes every chunk through a bounded window. A client that meets a fault raises, as a real one would.
"""

import asyncio
import json as json_format
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kelpie.sim.faults import Fault, Faults
from kelpie.sim.network.http_server import RequestHead, ResponseHead, Server
from kelpie.sim.network.network import Connection, ConnectionLost, End

CHUNK_BYTES = 64 * 1024
TIMEOUT_S = 300.0


class ServerDown(ConnectionLost):
    """No server listens: the node is down. It has seen nothing of the request."""


class ClientDisconnected(ConnectionLost):
    """The client itself disconnected, because of a fault."""


class ClientTimeout(ConnectionLost):
    """The client's timeout expired."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json_format.loads(self.body)


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    data: str
    event: str | None = None
    id: str | None = None

    def json(self) -> Any:
        return json_format.loads(self.data)


class SimClient:
    """One client. `server` returns the server that listens at the moment, None while the node is down; `headers` go
    with each of its requests."""

    def __init__(
        self,
        name: str,
        server: Callable[[], Server | None],
        faults: Faults,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._server = server
        self._faults = faults
        self._headers = dict(headers or {})

    async def request(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Response:
        """Sends a request and reads the whole answer. Raises ConnectionLost when it does not come."""
        try:
            async with asyncio.timeout(timeout_s), self.stream(method, path, json, headers=headers) as stream:
                body = b"".join([chunk async for chunk in stream.chunks()])
                return Response(stream.status, stream.headers, body)
        except TimeoutError:
            raise ClientTimeout(f"No answer to {method} {path} within {timeout_s} s.") from None

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, json: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator["Stream", None]:
        """Sends a request and yields its answer as a stream; leaving the block drops the connection."""
        server = self._server()
        if server is None or not server.node.alive:
            raise ServerDown("Connection refused: the node is down.")
        body = json if isinstance(json, bytes) else b"" if json is None else json_format.dumps(json).encode()
        connection = server.accept(self.name)
        try:
            every = {**self._headers, **(headers or {})}
            await self._send(connection, _head(self.name, method, path, body, every), body)
            if self._faults.fires(Fault.vanishing_client, "client.request", path):
                raise ClientDisconnected(f"The client left after sending {method} {path}.")
            head = await connection.down.receive()
            if not isinstance(head, ResponseHead):
                raise ConnectionLost("The server closed the connection without an answer.")
            yield Stream(connection, head, self._faults)
        finally:
            connection.leave()

    async def _send(self, connection: Connection, head: RequestHead, body: bytes) -> None:
        await connection.up.send(head)
        for start in range(0, max(1, len(body)), CHUNK_BYTES):
            await connection.up.send((body[start : start + CHUNK_BYTES], start + CHUNK_BYTES < len(body)))


class Stream:
    """An answer as it arrives."""

    def __init__(self, connection: Connection, head: ResponseHead, faults: Faults) -> None:
        self.status = head.status
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers}
        self._connection = connection
        self._faults = faults

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes, chunk by chunk. Raises ConnectionLost when they end too early."""
        while True:
            if self._faults.fires(Fault.slow_client, "client.read"):
                await asyncio.sleep(self._faults.size(Fault.slow_client))
            packet = await self._connection.down.receive()
            if isinstance(packet, End):
                if not packet.clean:
                    raise ConnectionLost("The server stopped in the middle of its answer.")
                return
            yield packet
            if self._faults.fires(Fault.vanishing_client, "client.stream"):
                raise ClientDisconnected("The client left in the middle of the answer.")

    async def events(self) -> AsyncIterator[Event]:
        """The server-sent events. Comments are skipped; an event that was cut off is not an event."""
        buffer = b""
        async for chunk in self.chunks():
            buffer += chunk.replace(b"\r\n", b"\n")
            *whole, buffer = buffer.split(b"\n\n")
            for block in whole:
                if event := _event(block.decode()):
                    yield event


def _event(block: str) -> Event | None:
    data: list[str] = []
    named: dict[str, str] = {}
    for line in block.split("\n"):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field in ("event", "id"):
            named[field] = value
    return Event("\n".join(data), named.get("event"), named.get("id")) if data else None


def _head(client: str, method: str, path: str, body: bytes, headers: Mapping[str, str] | None) -> RequestHead:
    fields = {"host": "localhost", "user-agent": "kelpie-sim", "accept": "*/*", **(headers or {})}
    if body:
        fields = {**fields, "content-type": fields.get("content-type", "application/json")}
        fields["content-length"] = str(len(body))
    encoded = tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields.items())
    return RequestHead(method, path, encoded, client)
