"""MCP over HTTP with server-sent events, as of 2024-11-05: one stream carries all answers, requests are posted."""

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import urljoin, urlsplit

from kelpie.core.errors import McpError, McpFault
from kelpie.mcp.protocol import http_headers
from kelpie.mcp.protocol.messages import Failure, Message, NotAMessage, Notification, Request, Result, decode, encode
from kelpie.mcp.transports.http_exchange import HttpExchange
from kelpie.mcp.transports.pending import PendingRequests
from kelpie.mcp.transports.port import Headers, Inbound, StreamBroken, Unauthorized, malformed, nobody
from kelpie.world.http.event_stream import EventReader, ServerEvent


class LegacySseTransport:
    closing_cancels = False
    probes = False  # the stateless generation never had this transport

    def __init__(self, url: str, exchange: HttpExchange, headers: Headers) -> None:
        self.version: str | None = None
        self.inbound: Inbound = nobody
        self._url = url
        self._exchange = exchange
        self._headers = headers
        self._pending = PendingRequests()
        self._endpoint: asyncio.Future[str] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._alive = True

    @property
    def alive(self) -> bool:
        return self._alive

    async def start(self) -> None:
        self._endpoint = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(self._endpoint))
        await asyncio.shield(self._endpoint)

    async def request(self, request: Request, headers: Mapping[str, str], *, patient: bool = False) -> Result | Failure:
        self._pending.add(request.id)
        try:
            await self._post(request)
            return await self._pending.answer(request.id, None if patient else self._exchange.limits.read_s)
        finally:
            self._pending.remove(request.id)

    async def tell(self, message: Notification | Result | Failure) -> None:
        await self._post(message)

    async def listen(self, ready: Callable[[], None]) -> None:
        """Everything arrives on the one stream."""
        ready()

    async def close(self) -> None:
        self._alive = False
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait((self._reader,))
        self._pending.end(McpError(McpFault.closed, "the connection was closed"))
        await self._exchange.close()

    async def _post(self, message: Message) -> None:
        assert self._endpoint is not None, "start() comes first"
        sent = {"content-type": "application/json", **await self._headers()}
        if self.version is not None:
            sent[http_headers.VERSION] = self.version
        async with self._exchange.open("POST", await self._endpoint, sent, encode(message)) as response:
            if response.status_code in (401, 403):
                raise Unauthorized(response.status_code, response.headers.get("www-authenticate", ""))
            if response.status_code >= 400:
                raise McpError(
                    McpFault.refused, f"it answered with status {response.status_code}", code=response.status_code
                )

    async def _read(self, endpoint: "asyncio.Future[str]") -> None:
        """Reads the stream to its end, and tells everybody who waits why it ended."""
        try:
            sent = {**await self._headers(), "accept": "text/event-stream"}
            async with self._exchange.open("GET", self._url, sent, patient=True) as response:
                if response.status_code in (401, 403):
                    raise Unauthorized(response.status_code, response.headers.get("www-authenticate", ""))
                if response.status_code >= 400:
                    raise McpError(
                        McpFault.refused, f"it answered with status {response.status_code}", code=response.status_code
                    )
                async for event in self._exchange.events(response, EventReader(), patient=True):
                    self._take(event, endpoint)
            raise StreamBroken("it has closed the stream of its answers")
        except McpError as error:
            self._stop(error, endpoint)
        except asyncio.CancelledError:
            self._stop(McpError(McpFault.closed, "the connection was closed"), endpoint)
            raise

    def _stop(self, error: McpError, endpoint: "asyncio.Future[str]") -> None:
        self._alive = False
        self._pending.end(error)
        if not endpoint.done():
            endpoint.set_exception(error)
            endpoint.exception()  # whoever waits gets it; there may be nobody

    def _take(self, event: ServerEvent, endpoint: "asyncio.Future[str]") -> None:
        self._pending.sign_of_life()
        if event.name == "endpoint":
            if not endpoint.done():
                endpoint.set_result(self._checked_endpoint(event.data))
            return
        if not event.data or event.name not in ("", "message"):
            return
        try:
            message = decode(event.data)
        except NotAMessage as error:
            raise malformed(str(error)) from None
        if isinstance(message, Result | Failure):
            self._pending.resolve(message)
            return
        ids = self._pending.ids
        self.inbound(message, ids[0] if len(ids) == 1 else None)

    def _checked_endpoint(self, path: str) -> str:
        """The address for requests, on the server itself: another one would get the token."""
        url = urljoin(self._url, path.strip())
        ours, theirs = urlsplit(self._url), urlsplit(url)
        if (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc):
            raise McpError(McpFault.malformed, f"it sends requests to another server, {theirs.netloc[:100]}")
        return url
