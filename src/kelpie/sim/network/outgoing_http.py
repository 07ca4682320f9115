"""The `Http` port in the simulation: an httpx transport whose other ends are registered handlers.

The providers' real wire code runs on it unchanged and meets the errors that real sockets give: refused and timed-out
connections, resets, streams that stop in the middle, bytes that come late.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import httpx

from kelpie.sim.loop.node import Node, outside
from kelpie.sim.network.network import Connection, ConnectionLost, End, Network

PLACE = "network.provider"
_CUT = "peer closed connection without sending complete message body (incomplete chunked read)"


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request as the external server gets it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Head:
    status: int
    headers: Sequence[tuple[str, str]]


class OutgoingResponse:
    """The answer of a handler: a head, then bytes. Returning from the handler ends it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._clean = True

    async def start(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        await self._connection.down.send(_Head(status, tuple((headers or {}).items())))

    async def send(self, data: bytes) -> None:
        await self._connection.down.send(data)

    def cut(self) -> None:
        """Makes the end of the handler an end in the middle of the body."""
        self._clean = False

    def finish(self) -> None:
        self._connection.down.put(End(self._clean))


Handler = Callable[[OutgoingRequest, OutgoingResponse], Awaitable[None]]


class Internet:
    """The servers that a node can reach, by host name."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._hosts: dict[str, Handler] = {}
        self._places: dict[str, str] = {}

    def host(self, name: str, handler: Handler, place: str = PLACE) -> None:
        """Registers a server, by its host name, or by `host:port` for one port of it. `place` is where the faults of
        its connections are."""
        self._hosts[name] = handler
        self._places[name] = place

    def unhost(self, name: str) -> None:
        """Takes a server away: connections to it are refused from now on; those that are open stay."""
        self._hosts.pop(name, None)

    def has(self, name: str, port: int | None) -> bool:
        """Checks whether there is a server at this address."""
        return self._handler(name, port) is not None

    def open(self, node: Node, name: str, port: int | None = None) -> Connection | None:
        """Begins a connection to a server; None when there is none of that name."""
        handler = self._handler(name, port)
        if handler is None:
            return None
        connection = self.network.connect(node, f"{node.name}-{name}", self._places.get(name, PLACE))
        self.network.loop.create_task(_serve(connection, handler), name=f"host-{name}", context=outside())
        return connection

    def _handler(self, name: str, port: int | None) -> Handler | None:
        return self._hosts.get(f"{name}:{port}") or self._hosts.get(name)


async def _serve(connection: Connection, handler: Handler) -> None:
    try:
        await connection.up.receive()
        await connection.down.send(b"")  # the connection is made
        asked: OutgoingRequest | End = await connection.up.receive()
        if isinstance(asked, End):
            return
        answer = OutgoingResponse(connection)
        serving = asyncio.ensure_future(handler(asked, answer))
        leaving = asyncio.ensure_future(_left(connection))
        await asyncio.wait((serving, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if serving.done():
            await serving
            answer.finish()
        else:
            serving.cancel()
    except ConnectionLost:
        return


async def _left(connection: Connection) -> None:
    """Returns when the client has disconnected."""
    try:
        await connection.up.receive()
    except ConnectionLost:
        return


class SimHttp:
    """One node's access to the simulated internet."""

    def __init__(self, internet: Internet, node: Node) -> None:
        self._internet = internet
        self._node = node

    def transport(self, *, public: bool = False) -> httpx.AsyncBaseTransport:
        return SimTransport(self._internet, self._node)

    async def listens(self, host: str, port: int) -> bool:
        await asyncio.sleep(self._internet.network.latency_s())
        return self._internet.has(host, port)


class SimTransport(httpx.AsyncBaseTransport):
    def __init__(self, internet: Internet, node: Node) -> None:
        self._internet = internet
        self._node = node

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        limits: Mapping[str, float | None] = request.extensions.get("timeout", {})
        body = await request.aread()
        connection = self._internet.open(self._node, request.url.host, request.url.port)
        if connection is None:
            await asyncio.sleep(self._internet.network.latency_s())
            raise httpx.ConnectError(f"no such host: {request.url.host}", request=request)
        try:
            await _connect(connection, limits.get("connect"), request)
            return await _exchange(connection, limits.get("read"), request, body)
        except BaseException:  # raised again; the other end sees the line go, as it would a socket
            connection.leave()
            raise


async def _connect(connection: Connection, timeout_s: float | None, request: httpx.Request) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await connection.up.send(b"")
            await connection.down.receive()
    except ConnectionLost as error:
        raise httpx.ConnectError(str(error), request=request) from error
    except TimeoutError as error:
        raise httpx.ConnectTimeout("the connection took too long", request=request) from error


async def _exchange(
    connection: Connection, timeout_s: float | None, request: httpx.Request, body: bytes
) -> httpx.Response:
    path = request.url.raw_path.decode("ascii")
    asked = OutgoingRequest(
        request.method, path, {name.lower(): value for name, value in request.headers.items()}, body
    )
    try:
        async with asyncio.timeout(timeout_s):
            await connection.up.send(asked)
            head = await connection.down.receive()
    except ConnectionLost as error:
        raise httpx.ReadError(str(error), request=request) from error
    except TimeoutError as error:
        raise httpx.ReadTimeout("the answer took too long", request=request) from error
    if isinstance(head, End):
        raise httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)
    return httpx.Response(
        head.status, headers=list(head.headers), stream=_Body(connection, timeout_s, request), request=request
    )


class _Body(httpx.AsyncByteStream):
    def __init__(self, connection: Connection, timeout_s: float | None, request: httpx.Request) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    packet = await self._connection.down.receive()
            except ConnectionLost as error:
                raise httpx.ReadError(str(error), request=self._request) from error
            except TimeoutError as error:
                raise httpx.ReadTimeout("the stream stood still", request=self._request) from error
            if not isinstance(packet, End):
                yield packet
                continue
            if not packet.clean:
                raise httpx.RemoteProtocolError(_CUT, request=self._request)
            return

    async def aclose(self) -> None:
        self._connection.leave()
