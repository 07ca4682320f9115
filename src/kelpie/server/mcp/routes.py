"""The endpoint /mcp: one JSON-RPC message in each POST, answered as JSON, or as an event stream where it takes long.

Both generations are served at once: a request with an envelope in its `_meta` stands for itself; every other one is of
the generation that begins with `initialize`. There are no sessions and no streams that a client opens, so GET and
DELETE are not allowed.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from json import JSONDecodeError
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from kelpie.mcp.protocol import http_headers
from kelpie.mcp.protocol.envelope import (
    META,
    PROGRESS_TOKEN,
    Rejected,
    has_envelope,
    named_version,
    opened,
    unsupported,
)
from kelpie.mcp.protocol.messages import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Failure,
    Message,
    NotAMessage,
    Notification,
    Result,
    read,
)
from kelpie.mcp.protocol.messages import Request as JsonRpcRequest
from kelpie.mcp.protocol.versions import SESSION_VERSIONS, UNNAMED, is_stateless
from kelpie.server.http.errors import refused
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.json_body import JsonRequest
from kelpie.server.http.sse import EventStream, frame
from kelpie.server.mcp import methods
from kelpie.server.mcp.peer import Peer
from kelpie.server.mcp.results import complete

PATH = "/mcp"
PING = b": still working\n\n"
JSON, EVENTS = "application/json", "text/event-stream"
_BAD = (PARSE_ERROR, INVALID_REQUEST, HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_VERSION)
_STATELESS_STATUS: dict[int, int] = {**dict.fromkeys((*_BAD, INVALID_PARAMS), 400), METHOD_NOT_FOUND: 404}
_SESSION_STATUS: dict[int, int] = dict.fromkeys(_BAD, 400)
_FOREIGN = "Web pages of other sites may not use this server; see the setting server.allowed_origins."

router = APIRouter(tags=["mcp"], include_in_schema=False)


@router.api_route(PATH, methods=["GET", "DELETE"], response_model=None)
async def no_session(request: Request) -> Response:
    """This server begins no streams and keeps no sessions."""
    return refused("method_not_allowed", "Use POST; this server has no sessions.", {"Allow": "POST"})


@router.post(PATH, response_model=None)
async def handle(request: Request) -> Response:
    """Answers one message."""
    origin = request.headers.get("origin")
    if origin is not None and origin not in request.app.state.allowed_origins:
        return _failure(Failure(None, INVALID_REQUEST, _FOREIGN), 403)
    takes = _accepted(request.headers.get("accept", "*/*"))
    if not takes:
        return _failure(Failure(None, INVALID_REQUEST, f"Accept must name {JSON} or {EVENTS}."), 406)
    try:
        message = read(await JsonRequest(request.scope, request.receive).json())
    except JSONDecodeError as error:
        return _failure(Failure(None, PARSE_ERROR, f"The body is not a JSON document: {error.msg}"), 400)
    except NotAMessage as error:
        return _failure(Failure(None, error.code, f"The body is not one JSON-RPC message: {error}"), 400)
    if not isinstance(message, JsonRpcRequest):
        return _taken(message)
    try:
        return await _answered(request, message, takes)
    except Rejected as error:
        stateless = is_stateless(request.headers.get(http_headers.VERSION)) or has_envelope(message.params)
        status = (_STATELESS_STATUS if stateless else _SESSION_STATUS).get(error.code, 200)
        return _failure(Failure(message.id, error.code, str(error), error.data), status)


async def _answered(request: Request, message: JsonRpcRequest, takes: frozenset[str]) -> Response:
    """Raises Rejected."""
    peer = _peer(request, message)
    if message.method != "tools/call":
        result = await methods.answer(peer, message.method, message.params)
        return _answer(message, peer, result, takes)
    tool = methods.called(peer, message.params)  # raises Rejected while a status can still be sent
    call = methods.call_tool(peer, tool, message.params)
    if tool.long and EVENTS in takes:
        return EventStream(_frames(message, peer, call), ping=lambda: PING, greets=False)
    async with aclosing(call):
        results = [each async for each in call if isinstance(each, dict)]
    return _answer(message, peer, results[-1], takes)


async def _frames(
    message: JsonRpcRequest, peer: Peer, call: AsyncGenerator[str | dict[str, Any], None]
) -> AsyncGenerator[bytes, None]:
    """A long call as events: its progress, if the client asked for it, and its result."""
    meta: Any = message.params.get(META)
    token = meta.get(PROGRESS_TOKEN) if isinstance(meta, Mapping) else None
    number = 0
    async with aclosing(call):
        async for each in call:
            if isinstance(each, dict):
                yield frame(_result(message, peer, each).wire())
            elif token is not None:
                number += 1
                about = {"progressToken": token, "progress": number, "message": each}
                yield frame(Notification("notifications/progress", about).wire())


def _peer(request: Request, message: JsonRpcRequest) -> Peer:
    """Raises Rejected."""
    scope, headers = request.scope, {name.lower(): value.strip(" \t") for name, value in request.headers.items()}
    api, given, named = request.app.state.api(scope["caller"]), scope["pass"], headers.get(http_headers.VERSION)
    if is_stateless(named) or has_envelope(message.params):
        if named is not None and named != (version := named_version(message.params)) and version is not None:
            raise Rejected(HEADER_MISMATCH, f"Header mismatch: {http_headers.VERSION} is not the version in the body")
        envelope = opened(message.params)
        if (why := http_headers.mismatch(headers, envelope.version, message.method, message.params)) is not None:
            raise Rejected(HEADER_MISMATCH, f"Header mismatch: {why}")
        return Peer(api, given, envelope.version, envelope.capabilities)
    if named is not None and named not in SESSION_VERSIONS:
        raise unsupported(named)
    return Peer(api, given, named or UNNAMED)


def _taken(message: Message) -> Response:
    """The answer to what needs none: a notification. A client has nothing to answer here."""
    if isinstance(message, Notification):
        return Response(status_code=202)
    return _failure(Failure(None, INVALID_REQUEST, "This server sends no requests, so it takes no answers."), 400)


def _accepted(accept: str) -> frozenset[str]:
    """The types that the client takes."""
    named = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if "*/*" in named:
        return frozenset({JSON, EVENTS})
    found = {JSON} if named & {JSON, "application/*"} else set[str]()
    return frozenset(found | ({EVENTS} if named & {EVENTS, "text/*"} else set()))


def _result(message: JsonRpcRequest, peer: Peer, result: Mapping[str, Any]) -> Result:
    return Result(message.id, complete(message.method, result, stateless=peer.stateless))


def _answer(message: JsonRpcRequest, peer: Peer, result: Mapping[str, Any], takes: frozenset[str]) -> Response:
    made = _result(message, peer, result).wire()
    if JSON in takes:
        return JsonAnswer(made)
    return Response(frame(made), media_type=EVENTS)


def _failure(failure: Failure, status: int) -> Response:
    return JsonAnswer(failure.wire(), status)
