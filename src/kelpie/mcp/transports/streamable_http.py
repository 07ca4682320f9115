"""MCP over streamable HTTP, of both generations: each request is a POST, answered by JSON or by a stream of events.

A stream of the session generation that breaks is resumed from its last event. In the stateless one that is up to the
caller, who sends the request again.
"""

import asyncio
from collections.abc import Callable, Mapping

import httpx

from kelpie.core.errors import McpError, McpFault
from kelpie.mcp.protocol import http_headers
from kelpie.mcp.protocol.messages import (
    Failure,
    NotAMessage,
    Notification,
    Request,
    RequestId,
    Result,
    decode,
    encode,
)
from kelpie.mcp.protocol.versions import is_stateless
from kelpie.mcp.transports.http_exchange import HttpExchange
from kelpie.mcp.transports.port import Headers, Inbound, SessionOver, StreamBroken, Unauthorized, malformed, nobody
from kelpie.observe import logs
from kelpie.world.http.event_stream import EventReader

RESUMES_MAX = 3  # in a row that brought nothing
RESUME_S, RESUME_S_MIN, RESUME_S_MAX = (
    1.0,
    0.05,
    10.0,
)  # before a stream is asked for again, unless the server says how long
GOODBYE_S = 2.0
LISTEN_AGAIN_S, LISTEN_AGAIN_S_MIN, LISTEN_AGAIN_S_MAX = 5.0, 1.0, 300.0
NOTHING_TO_HEAR = (400, 404, 405, 406, 501)

_STREAM = "text/event-stream"
_log = logs.get("mcp")


class StreamableHttpTransport:
    closing_cancels = True
    probes = True

    def __init__(self, url: str, exchange: HttpExchange, headers: Headers) -> None:
        self.version: str | None = None
        self.inbound: Inbound = nobody
        self._url = url
        self._exchange = exchange
        self._headers = headers
        self._session: str | None = None
        self._in_session = False  # also after the session was closed: requests of it may be under way
        self._over = False  # the server has ended the session

    @property
    def alive(self) -> bool:
        return not self._over  # each request makes its own connection if it needs one

    async def start(self) -> None:
        """Nothing to connect: the first request does."""

    async def request(self, request: Request, headers: Mapping[str, str], *, patient: bool = False) -> Result | Failure:
        if request.method == "initialize":
            self._session, self._in_session, self.version = None, False, None
        sent = {**await self._common(), **headers, "accept": f"application/json, {_STREAM}"}
        async with self._exchange.open("POST", self._url, sent, encode(request), patient=patient) as response:
            resumes = not is_stateless(headers.get(http_headers.VERSION))
            return await self._answer(request, response, patient, resumes)

    async def tell(self, message: Notification | Result | Failure) -> None:
        sent = {**await self._common(), "accept": f"application/json, {_STREAM}"}
        async with self._exchange.open("POST", self._url, sent, encode(message)) as response:
            if response.status_code >= 400:
                raise await self._refusal(response)

    async def listen(self, ready: Callable[[], None]) -> None:
        """Follows the stream of what a server sends on its own; returns when the server has none, or had one and no
        longer knows the session."""
        reader, heard = EventReader(), False
        while True:
            resumed = {http_headers.LAST_EVENT: reader.last_id} if reader.last_id else {}
            sent = {**await self._common(), **resumed, "accept": _STREAM}
            try:
                async with self._exchange.open("GET", self._url, sent, patient=True) as response:
                    ready()
                    if response.status_code in NOTHING_TO_HEAR or not _is_stream(response):
                        self._over = heard and response.status_code == 404
                        return
                    if response.status_code >= 400:
                        raise await self._refusal(response)
                    heard = True
                    async for event in self._exchange.events(response, reader, patient=True):
                        self._hear(event.data, None)
            except (StreamBroken, NotAMessage):
                pass  # asked for again below
            except McpError as error:
                if error.kind is not McpFault.unreachable:
                    raise
            wait_s = LISTEN_AGAIN_S if reader.retry_ms is None else reader.retry_ms / 1000
            await asyncio.sleep(min(max(wait_s, LISTEN_AGAIN_S_MIN), LISTEN_AGAIN_S_MAX))

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                async with asyncio.timeout(GOODBYE_S):
                    sent = {**await self._common(), http_headers.SESSION: session}
                    async with self._exchange.open("DELETE", self._url, sent):
                        pass
            except (McpError, TimeoutError):
                _log.debug("mcp_session_kept", "MCP server did not take the end of its session", url=self._url)
        await self._exchange.close()

    async def _common(self) -> dict[str, str]:
        """The headers of every request."""
        headers = {"content-type": "application/json", **await self._headers()}
        if self._session is not None:
            headers[http_headers.SESSION] = self._session
        if self.version is not None:
            headers[http_headers.VERSION] = self.version
        return headers

    async def _answer(
        self, request: Request, response: httpx.Response, patient: bool, resumes: bool
    ) -> Result | Failure:
        if response.status_code >= 400:
            return await self._error(request, response)
        if request.method == "initialize":
            self._session = response.headers.get(http_headers.SESSION)
            self._in_session = self._session is not None
        if response.status_code == 202:
            raise malformed("a request needs an answer, and it accepted it without one")
        if _is_stream(response):
            return await self._follow(request, response, patient, resumes)
        return self._own(request, await self._exchange.whole(response))

    async def _error(self, request: Request, response: httpx.Response) -> Failure:
        """The JSON-RPC error in an answer that is none of success. Raises McpError if there is none."""
        body = await self._exchange.beginning(response)
        if "json" in response.headers.get("content-type", "") and response.status_code not in (401, 403):
            try:
                found = decode(body)
            except NotAMessage:
                found = None
            if isinstance(found, Failure) and not (response.status_code == 404 and self._in_session):
                return Failure(request.id, found.code, found.message, found.data)
        raise self._refused(response, body)

    async def _refusal(self, response: httpx.Response) -> McpError:
        return self._refused(response, await self._exchange.beginning(response))

    def _refused(self, response: httpx.Response, body: bytes) -> McpError:
        status = response.status_code
        if status in (401, 403):
            return Unauthorized(status, response.headers.get("www-authenticate", ""))
        if status == 404 and self._in_session:
            return SessionOver()
        text = body.decode("utf-8", "replace").strip()
        said = f": {' '.join(text.split())[:200]}" if text else ""
        return McpError(McpFault.refused, f"it answered with status {status}{said}", code=status)

    def _own(self, request: Request, body: bytes) -> Result | Failure:
        try:
            message = decode(body)
        except NotAMessage as error:
            raise malformed(str(error)) from None
        if not isinstance(message, Result | Failure) or message.id not in (request.id, None):
            raise malformed("it is the answer to something else")
        return message

    async def _follow(
        self, request: Request, response: httpx.Response, patient: bool, resumes: bool
    ) -> Result | Failure:
        """The answer in a stream. One that breaks off is resumed; a server may also end it on purpose, and often, so
        only resumptions that brought nothing count against their limit."""
        reader, loop = EventReader(), asyncio.get_running_loop()
        found, vain = await self._until_answer(request, response, reader, patient), 0
        while found is None and resumes and reader.last_id and vain < RESUMES_MAX:
            wait_s = RESUME_S * 2**vain if reader.retry_ms is None else reader.retry_ms / 1000
            await asyncio.sleep(min(max(wait_s, RESUME_S_MIN), RESUME_S_MAX))
            last_id, begun_s = reader.last_id, loop.time()
            found = await self._resume(request, reader)
            lasted = reader.last_id != last_id or loop.time() - begun_s >= RESUME_S_MAX
            vain = 0 if lasted else vain + 1
        if found is None:
            raise StreamBroken("its answer broke off before the end")
        return found

    async def _resume(self, request: Request, reader: EventReader) -> Result | Failure | None:
        """The answer in the stream, asked for again; None if that breaks as well. The request was carried out, or will
        be: no failure here may say that it can be made again."""
        try:
            sent = {**await self._common(), http_headers.LAST_EVENT: reader.last_id, "accept": _STREAM}
            async with self._exchange.open("GET", self._url, sent) as response:
                if response.status_code >= 400 or not _is_stream(response):
                    raise await self._refusal(response)
                return await self._until_answer(request, response, reader)
        except McpError as error:
            if isinstance(error, SessionOver | Unauthorized) or error.kind is McpFault.refused:
                raise StreamBroken(f"its answer broke off, and the rest is not to be had: {error}") from error
            if error.kind in (McpFault.closed, McpFault.unreachable):
                return None
            raise

    async def _until_answer(
        self, request: Request, response: httpx.Response, reader: EventReader, patient: bool = False
    ) -> Result | Failure | None:
        """The answer in a stream; None if it ends or breaks before."""
        try:
            async for event in self._exchange.events(response, reader, patient=patient):
                if found := self._hear(event.data, request.id):
                    return found
        except StreamBroken:
            return None
        except NotAMessage as error:
            raise malformed(str(error)) from None
        return None

    def _hear(self, data: str, during: RequestId | None) -> Result | Failure | None:
        """Passes on what is no answer. Raises NotAMessage."""
        if not data:
            return None
        message = decode(data)
        if isinstance(message, Result | Failure):
            return message if message.id in (during, None) else None
        self.inbound(message, during)
        return None


def _is_stream(response: httpx.Response) -> bool:
    return _STREAM in response.headers.get("content-type", "")
