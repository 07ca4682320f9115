"""Limits and checks between the network and the endpoints, as plain ASGI.

`RequestLog` gives every request an id and a line in the log, and turns an uncaught error into a 500. `RequestGuard`
decides which requests are accepted: a web page must not drive a server that trusts its own machine, so the Host must be
a name of this machine (a rebound DNS name is not) and an Origin must be local, unless the server asks for a credential,
which no page has by itself; bodies are bounded in size and in time.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import Any

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kelpie.core.access.hosts import LOOPBACK, is_loopback
from kelpie.observe import logs
from kelpie.server.edge.cross_origin import AllowedOrigins
from kelpie.server.http.errors import UNKNOWN, Refused, refused
from kelpie.server.http.headers.answer_headers import IGNORED_HEADER, REQUEST_ID_HEADER
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.limits.body_limits import BodyLimit, BodyLimits
from kelpie.world.ids import Ids

BODY_STALL_S = 60.0  # how long a client may pause within a body

HEADER_BYTES_MAX = 64 * 1024
QUERY_BYTES_MAX = 60_000  # a thousand ids
QUERY_FIELDS_MAX = 2048
PATH_CHARS_MAX = 4096
REASON_CHARS_MAX = 500  # of a refusal, in the log
REASON_BYTES_MAX = 256 * 1024  # of a body that it is taken from

_HEADERS_TOO_LARGE = f"The headers are larger than {HEADER_BYTES_MAX} bytes; send fewer or shorter ones."
_ADDRESS_TOO_LONG = (
    f"The URL is too long: its path may have {PATH_CHARS_MAX} characters, its query {QUERY_BYTES_MAX} bytes and "
    f"{QUERY_FIELDS_MAX} fields. Send several requests."
)
_FOREIGN_HOST = "This server accepts only requests to a local host name; see the setting server.host."
_FOREIGN_PAGE = (
    "Web pages of other sites may not use this server. To allow one, add its origin to the setting "
    "server.allowed_origins."
)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

CUT_OFF = (
    "The server is shutting down and ended this request. A turn that had started continues after the restart; "
    "list the agent's messages before you send it again."
)

_log = logs.get("server")


class RequestLog:
    """Names each request (`X-Request-Id`, taken over or made), logs it, and catches uncaught errors."""

    def __init__(self, app: ASGIApp, ids: Ids) -> None:
        self._app = app
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else self._ids.uuid()
        with logs.bind(request_id=request_id):
            await self._traced(scope, receive, send, request_id)

    async def _traced(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        status = 0
        facts: dict[str, str] = {}

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID_HEADER] = request_id
                if ignored := headers.get(IGNORED_HEADER):
                    facts["ignored_fields"] = ignored
            elif status >= 400 and "reason" not in facts:
                facts.update(refusal_facts(message.get("body", b"")))
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except asyncio.CancelledError:
            if not status:  # the server stops before the request was done; a turn it began will go on
                await refused("server_stopping", CUT_OFF, {"x-should-retry": "false", "Connection": "close"})(
                    scope, receive, send_named
                )
            raise
        except Exception:  # the outermost handler: an unexpected error is logged and answered with a 500
            _log.exception(
                "request_crashed", "Request ended by an unexpected error", method=scope["method"], path=scope["path"]
            )
            if status:
                raise  # too late for an answer; the connection has to go
            await refused("internal_error", UNKNOWN)(scope, receive, send_named)
        finally:
            took_ms = round((loop.time() - started) * 1000, 1)
            _log.info(
                "http_request",
                "HTTP request",
                method=scope["method"],
                path=scope["path"],
                client=scope["client"][0] if scope.get("client") else None,
                status=status,
                took_ms=took_ms,
                **facts,
            )


def refusal_facts(body: bytes) -> dict[str, str]:
    """What the body of a refusal says, for the log: its code, and its reason in one bounded text."""
    try:
        told = orjson.loads(body) if len(body) <= REASON_BYTES_MAX else None
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(told, dict):
        return {}
    reason: Any = told.get("message") or told.get("detail") or told.get("error")
    if isinstance(reason, dict):
        reason = reason.get("message")
    if not isinstance(reason, str):
        return {}
    code: Any = told.get("code")
    return {"reason": reason[:REASON_CHARS_MAX]} | ({"error_code": code} if isinstance(code, str) else {})


class RequestGuard:
    """Refuses foreign hosts, foreign origins and oversized requests before anything is parsed."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str],
        limits: BodyLimits,
        *,
        stall_s: float = BODY_STALL_S,
        protected: bool = False,
        origins: AllowedOrigins | None = None,
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in (*LOOPBACK, *hosts))
        self._limits = limits
        self._stall_s = stall_s
        self._protected = protected
        self._origins = origins or AllowedOrigins(())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            limit = self._limits.of(scope["method"], scope["path"])
            if refused := self._refusal(scope, limit):
                await refused(scope, receive, send)
            else:
                await self._app(scope, _bounded(receive, limit, self._stall_s), send)

    def _refusal(self, scope: Scope, limit: BodyLimit) -> JsonAnswer | None:
        headers = Headers(scope=scope)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES_MAX:
            return refused("headers_too_large", _HEADERS_TOO_LARGE, {"Connection": "close"})
        if not self._protected and not self._is_ours(host_of(headers.get("host", ""))):
            return refused("host_refused", _FOREIGN_HOST)
        if not self._protected and not self._may_ask(scope["method"], headers):
            return refused("page_refused", _FOREIGN_PAGE)
        query = scope["query_string"]
        if len(query) > QUERY_BYTES_MAX or query.count(b"&") >= QUERY_FIELDS_MAX or len(scope["path"]) > PATH_CHARS_MAX:
            return refused("url_too_long", _ADDRESS_TOO_LONG)
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return refused("url_invalid", "The URL contains a NUL character; remove it.")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            return refused("length_invalid", "Content-Length: must be a whole number.", {"Connection": "close"})
        if len(length) > 18 or int(length) > limit.bytes_max:
            return refused("body_too_large", limit.refusal, {"Connection": "close"})
        return None

    def _may_ask(self, method: str, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is not None:
            return self._is_ours(host_of(origin.partition("://")[2])) or self._origins.is_configured(origin)
        # Without an Origin a browser still says where the request comes from; following a link to the docs is fine.
        if headers.get("sec-fetch-site") == "cross-site":
            return method in ("GET", "HEAD") and headers.get("sec-fetch-mode") == "navigate"
        return True

    def _is_ours(self, host: str) -> bool:
        return host in self._hosts or is_loopback(host)


def host_of(authority: str) -> str:
    """The host of `host[:port]`, without brackets and in lower case; empty when there is none."""
    text = authority.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def _bounded(receive: Receive, limit: BodyLimit, stall_s: float) -> Receive:
    seen = 0
    complete = False

    async def receive_bounded() -> Message:
        nonlocal seen, complete
        if complete:
            return await receive()  # waits for the client to go away, for as long as it stays
        try:
            async with asyncio.timeout(stall_s):
                message = await receive()
        except TimeoutError:
            raise Refused(
                "body_late", "The request body did not arrive in time; send the request again.", {"Connection": "close"}
            ) from None
        seen += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if seen > limit.bytes_max:
            raise Refused("body_too_large", limit.refusal, {"Connection": "close"})
        return message

    return receive_bounded
