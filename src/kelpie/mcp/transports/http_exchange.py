"""One HTTP exchange with an MCP server: bounded in time and size, without cookies, without redirects elsewhere.

It is what both HTTP transports and the OAuth requests share.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urljoin, urlsplit

import httpx

from kelpie import __version__
from kelpie.core.errors import McpError, McpFault
from kelpie.mcp.transports.port import StreamBroken, TransportLimits, timed_out, too_large
from kelpie.world.http.event_stream import EventReader, ServerEvent
from kelpie.world.http.port import Http

REDIRECTS_MAX = 3
ERROR_BYTES_MAX = 64 * 1024
_KEEPS_METHOD = (307, 308)


class HttpExchange:
    """HTTP to one server. `public` refuses every address that is not public, whatever a name resolves to."""

    def __init__(self, http: Http, limits: TransportLimits, *, public: bool) -> None:
        self.limits = limits
        self._http = http
        self._public = public
        self._transport: httpx.AsyncBaseTransport | None = None

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, patient: bool = False
    ) -> AsyncGenerator[httpx.Response]:
        """An answer whose body is not read yet. A `patient` one may take for ever to begin. Raises McpError."""
        response = await self._respond(method, url, headers, body, None if patient else self.limits.read_s)
        for _ in range(REDIRECTS_MAX):
            target = _redirect(url, response, method)
            if target is None:
                break
            await response.aclose()
            url = target
            response = await self._respond(method, url, headers, body, None if patient else self.limits.read_s)
        try:
            yield response
        finally:
            await response.aclose()

    async def whole(self, response: httpx.Response, bytes_max: int | None = None) -> bytes:
        """The body. Raises McpError when it is too large, too slow, or breaks off."""
        limit = self.limits.answer_bytes if bytes_max is None else bytes_max
        data = bytearray()
        async with aclosing(self._pieces(response, self.limits.read_s)) as pieces:
            async for piece in pieces:
                data += piece
                if len(data) > limit:
                    raise too_large(limit)
        return bytes(data)

    async def beginning(self, response: httpx.Response) -> bytes:
        """As much of an error's text as arrives."""
        try:
            return await self.whole(response, ERROR_BYTES_MAX)
        except McpError:
            return b""

    async def events(
        self, response: httpx.Response, reader: EventReader, *, patient: bool = False
    ) -> AsyncGenerator[ServerEvent]:
        """The events of a stream. A `patient` reader waits for ever, and bounds only each event. Raises McpError."""
        size, limit = 0, self.limits.answer_bytes
        async with aclosing(self._pieces(response, None if patient else self.limits.read_s)) as pieces:
            async for piece in pieces:
                size += len(piece)
                if size > limit:
                    raise too_large(limit)
                for event in reader.feed(piece):
                    if patient:
                        size = 0
                    yield event

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()

    async def _respond(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, read_s: float | None
    ) -> httpx.Response:
        if self._transport is None:
            self._transport = self._http.transport(public=self._public)
        sent = {"user-agent": f"kelpie/{__version__}", "accept-encoding": "identity", **headers}
        timeout = {"connect": self.limits.connect_s, "read": None, "write": None, "pool": None}
        try:
            request = httpx.Request(method, url, headers=sent, content=body, extensions={"timeout": timeout})
            async with asyncio.timeout(read_s):
                return await self._transport.handle_async_request(request)
        except TimeoutError:
            raise timed_out("it did not begin to answer", read_s or 0) from None
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise McpError(McpFault.unreachable, f"it cannot be reached: {error}") from error
        except UnicodeEncodeError as error:
            raise McpError(McpFault.refused, "a header of its configuration is not plain text") from error
        except httpx.HTTPError as error:
            raise StreamBroken(f"the connection broke before it answered: {error}") from error

    async def _pieces(self, response: httpx.Response, read_s: float | None) -> AsyncGenerator[bytes]:
        chunks: AsyncIterator[bytes] = response.aiter_bytes()
        while True:
            try:
                async with asyncio.timeout(read_s):
                    piece = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise timed_out("it stopped in the middle of its answer and sent nothing", read_s or 0) from None
            except httpx.HTTPError as error:
                raise StreamBroken(f"its answer broke off: {error}") from error
            yield piece


def _redirect(url: str, response: httpx.Response, method: str) -> str | None:
    """Where the request goes on to; None if the response is no redirect. Raises McpError for one to elsewhere."""
    if not 300 <= response.status_code < 400 or "location" not in response.headers:
        return None
    target = urljoin(url, response.headers["location"])
    if _origin(target) != _origin(url) or (method != "GET" and response.status_code not in _KEEPS_METHOD):
        raise McpError(
            McpFault.refused,
            f"it redirects to {target[:200]}, which is not followed; register that URL if it is the right one",
            code=response.status_code,
        )
    return target


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.netloc.lower()
