"""Errors in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`.

Every refusal on the way to an endpoint, of the guard, of the authentication, of the router or of the endpoint itself,
has Letta's shape. `OpenAiErrors` stands before all of them and rewrites the answers to requests of OpenAI's API, so
that nothing is left out. Statuses that the `openai` SDKs do not know become those that they do.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kelpie.core.errors import KelpieError
from kelpie.server.http.errors import refusal

PREFIX = "/openai/"
LETTA_CHAT = ("/v1/chat/completions", "/latest/chat/completions")
BODY_BYTES_MAX = 256 * 1024

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
_STATUS = {402: 429, 405: 404, 422: 400, 507: 429}
_QUOTAS = frozenset({"quota_exceeded", "llm_insufficient_credits"})
_CODES = {
    "unauthorized": "invalid_api_key",
    "not_found": "model_not_found",
    "quota_exceeded": "insufficient_quota",
    "llm_insufficient_credits": "insufficient_quota",
    "rate_exceeded": "rate_limit_exceeded",
    "llm_rate_limit": "rate_limit_exceeded",
    "parameter_unsupported": "unsupported_parameter",
    "llm_context_overflow": "context_length_exceeded",
}
_PARAM = re.compile(r"([a-z_][\w.\[\]]{0,99}): ")
_HEADERS_DROPPED = frozenset({b"content-length", b"content-type"})


def is_ours(path: str) -> bool:
    """True for the paths of OpenAI's API."""
    return path.startswith(PREFIX) or path.rstrip("/") in LETTA_CHAT


def error_object(message: str, kind: str, code: str | None, param: str | None = None) -> dict[str, Any]:
    return {"message": message, "type": kind, "param": param, "code": code}


def facts_of(error: KelpieError) -> tuple[str, str, str]:
    """The message, type and code of an error inside a stream."""
    told = refusal(error)
    kind = _kind(_STATUS.get(told.status, told.status), told.code)
    text = f"{told.message} {told.hint}" if told.hint else told.message
    return text, kind, _CODES.get(told.code, told.code)


def _kind(status: int, code: str) -> str:
    if code in _QUOTAS:
        return "insufficient_quota"
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


def rewritten(status: int, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The status and body of a refusal in OpenAI's words."""
    code = str(body.get("code") or "")
    status = _STATUS.get(status, status)
    message, param = _message(body)
    shape = error_object(message, _kind(status, code), _CODES.get(code, code) or None, param)
    return status, {"error": shape}


def _message(body: Mapping[str, Any]) -> tuple[str, str | None]:
    told: Any = body.get("message") or body.get("detail") or body.get("error") or ""
    hint = ""
    if isinstance(told, Mapping):
        hint = f" {told['hint']}" if told.get("hint") else ""
        told = told.get("message") or ""
    text = f"{told}{hint}" or "The request failed."
    found = _PARAM.match(text)
    return text, found[1].removeprefix("body.") if found else None


class OpenAiErrors:
    """Rewrites refusals of requests to OpenAI's API; everything else passes as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_ours(scope["path"]):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def send_rewritten(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and message["status"] >= 400:
                start = message
            elif start is None:
                await send(message)
            elif message["type"] == "http.response.body":
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await _send(send, start, body)

        await self._app(scope, receive, send_rewritten)


async def _send(send: Send, start: Message, body: bytes) -> None:
    try:
        told = orjson.loads(body) if len(body) <= BODY_BYTES_MAX else {}
    except orjson.JSONDecodeError:
        told = {}
    if not isinstance(told, dict):
        told = {}
    status, shape = rewritten(start["status"], told)
    data = orjson.dumps(shape)
    headers = [(name, value) for name, value in start["headers"] if name.lower() not in _HEADERS_DROPPED]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({**start, "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
