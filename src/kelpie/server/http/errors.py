"""Translation of the error tree of `core/errors.py` into HTTP, and the only place that does it.

Every refusal has one of four bodies, as Letta's clients know them: `{"detail": text}`, `{"detail": {...}}` while calls
wait for an answer, `{"error": {...}}` for failures of a model provider or of an MCP server, and `{"trace_id", "detail",
"message", "examples"?}` for a request that does not validate; its `message` is Kelpie's own, and so is the `code` that
all of them have.
"""

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from kelpie.core.errors import (
    ActivationFailed,
    CallerError,
    CommitUnknown,
    Conflict,
    ConversationBusy,
    Damaged,
    KelpieError,
    McpError,
    ModelError,
    ModelFault,
    Overloaded,
    PendingApproval,
    QuotaExceeded,
    RateExceeded,
    StorageError,
    Unauthorized,
)
from kelpie.observe import logs
from kelpie.server.http.error_status import STATUS
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.masks import MASK
from kelpie.server.http.validation_sentences import prefix_of_id, sentences

UNKNOWN = "An unknown error occurred"
_SECRET_FIELDS = frozenset(
    {"access_key", "api_key", "auth_token", "custom_headers", "env", "password", "secrets", "token"}
)
INPUT_CHARS_MAX = 200  # of a rejected value, in the answer that rejects it
ERRORS_MAX = 50  # in one answer

_log = logs.get("server")


class Unprocessable(CallerError):
    """The parts of the request contradict each other."""

    error_code = "request_contradictory"


class PartialFailure(KelpieError):
    """Error after a part of the request was done, such as a turn with history: sending it again could do it twice."""

    def __init__(self, cause: KelpieError) -> None:
        super().__init__(str(cause))
        self.error_code = cause.error_code
        self.cause = cause


class Refused(HTTPException):
    """A refusal of the HTTP layer, which FastAPI passes on also from within its own code."""

    def __init__(self, code: str, detail: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(STATUS[code], detail, headers)
        self.code = code


# Letta's types of failures of a provider, where they differ from our codes.
_MODEL_TYPES = {ModelFault.connection: "llm_error", ModelFault.malformed: "llm_error"}
# The codes of refusals that Starlette or FastAPI raise by themselves.
_HTTP_CODES = {404: "route_unknown", 405: "method_not_allowed"}

_STORAGE_RETRY_S = 1.0
_NOT_AGAIN = {"x-should-retry": "false"}  # the SDKs repeat a 409, 429 or 5xx by themselves unless this says no
_BEGINNING = reprlib.Repr()
_BEGINNING.maxstring = _BEGINNING.maxother = _BEGINNING.maxlist = _BEGINNING.maxdict = INPUT_CHARS_MAX
_EXAMPLE = "123e4567-e89b-42d3-8456-426614174000"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as a client sees it."""

    status: int
    code: str
    type: str
    message: str
    detail: str | None = None
    hint: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def refusal(error: KelpieError) -> Refusal:
    """The status, code and text of an error. Internal errors keep their text to the log."""
    if isinstance(error, PartialFailure):
        told = refusal(error.cause)
        return replace(told, headers={**told.headers, **_NOT_AGAIN})
    code = error.error_code
    status = STATUS[code]
    if isinstance(error, ModelError):
        kind = _MODEL_TYPES.get(error.kind, code)
        headers = _retry_after(error.retry_after_s) if error.retry_after_s is not None else {}
        return Refusal(status, code, kind, error.message, error.detail, error.hint, headers)
    if isinstance(error, McpError):
        return Refusal(status, code, "mcp_connection_error", error.message, error.kind.value)
    if code == "internal_error":
        return Refusal(status, code, code, UNKNOWN)
    family = "storage_error" if isinstance(error, StorageError) else "internal_error"
    return Refusal(status, code, family, str(error), headers=_headers(error))


def answer(error: KelpieError) -> JsonAnswer:
    """The HTTP answer for a Kelpie error."""
    told = refusal(error)
    if isinstance(error, PendingApproval):
        pending = {"code": "PENDING_APPROVAL", "message": told.message, "pending_request_id": error.request_id}
        return JsonAnswer({"detail": pending, "code": told.code}, told.status, told.headers)
    if isinstance(error.cause if isinstance(error, PartialFailure) else error, ModelError | McpError):
        body: dict[str, Any] = {"type": told.type, "message": told.message, "detail": told.detail}
        if told.hint:
            body["hint"] = told.hint
        return JsonAnswer({"error": body, "code": told.code}, told.status, told.headers)
    facts: dict[str, Any] = {"run_id": error.run_id} if isinstance(error, ConversationBusy) else {}
    if isinstance(error, QuotaExceeded | RateExceeded):
        facts["quota"] = error.quota
    return JsonAnswer({"detail": told.message, "code": told.code, **facts}, told.status, told.headers)


def refused(code: str, detail: str, headers: Mapping[str, str] | None = None) -> JsonAnswer:
    """The answer to a request that the HTTP layer refuses."""
    return JsonAnswer({"detail": detail, "code": code}, STATUS[code], headers)


def http_refusal(error: HTTPException) -> JsonAnswer:
    """The answer for a refusal that was raised as an exception."""
    code = error.code if isinstance(error, Refused) else _HTTP_CODES.get(error.status_code, "invalid_request")
    return JsonAnswer({"detail": error.detail, "code": code}, error.status_code, error.headers)


def error_frame(error: KelpieError, run_id: str | None) -> dict[str, Any]:
    """The same error inside a stream, whose status has already been sent."""
    told = refusal(error)
    frame: dict[str, Any] = {
        "message_type": "error_message",
        "run_id": run_id,
        "error_type": told.type,
        "message": told.message,
        "detail": told.detail or told.message,
        "seq_id": None,
    }
    if told.hint:
        frame["hint"] = told.hint
    return frame


def invalid_request(errors: Sequence[Any]) -> JsonAnswer:
    """The answer to a request that does not validate: `detail` is one string with a list in it, as in Letta, and
    `message` says the same in sentences."""
    shown = [_error_shape(error) for error in errors[:ERRORS_MAX]]
    # there are no traces yet; see X-Request-Id
    body: dict[str, Any] = {"trace_id": "", "detail": repr(shown), "code": "validation_failed"}
    body["message"] = sentences(errors)
    examples = [f"{prefix}-{_EXAMPLE}" for error in shown if (prefix := prefix_of_id(error))]
    if examples:
        body["examples"] = examples
    if len(errors) > ERRORS_MAX:
        body["detail"] += f" and {len(errors) - ERRORS_MAX} more"
    return JsonAnswer(body, STATUS["validation_failed"])


def register(app: FastAPI) -> None:
    """Registers the exception handlers. An error that has none ends as a 500 in `guard.RequestLog`."""
    app.add_exception_handler(KelpieError, _on_kelpie_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)


async def _on_kelpie_error(request: Request, error: Exception) -> JsonAnswer:
    assert isinstance(error, KelpieError)
    told = answer(error)
    failure = error.cause if isinstance(error, PartialFailure) else error
    if isinstance(failure, ModelError):
        _log_provider_failure(request, failure, told.status_code)
    elif isinstance(failure, McpError):
        _log.warning(
            "mcp_request_failed",
            "Request to an MCP server failed",
            path=request.url.path,
            status=told.status_code,
            error=failure.message,
        )
    elif told.status_code >= 500 and not isinstance(error, QuotaExceeded):  # which is the client's to mend
        _log.error(
            "request_failed",
            "Request failed",
            path=request.url.path,
            status=told.status_code,
            error_code=error.error_code,
            exc_info=error,
        )
    return told


def _log_provider_failure(request: Request, error: ModelError, status: int) -> None:
    """One line without a traceback: the failure is the provider's, and the hint says what to do about it."""
    _log.warning(
        "provider_failed",
        "Request failed because of a model provider",
        path=request.url.path,
        status=status,
        kind=error.kind.value,
        error=error.message,
        detail=error.detail,
        hint=error.hint,
    )


async def _on_invalid_request(request: Request, error: Exception) -> JsonAnswer:
    assert isinstance(error, RequestValidationError)
    return invalid_request(error.errors())


def _headers(error: KelpieError) -> Mapping[str, str]:
    if isinstance(error, Overloaded | ActivationFailed):
        return _retry_after(error.retry_after_s)
    if isinstance(error, Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, Conflict | QuotaExceeded | CommitUnknown | Damaged):
        return _NOT_AGAIN
    return _retry_after(_STORAGE_RETRY_S) if isinstance(error, StorageError) else {}


def _retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def _error_shape(error: Mapping[str, Any]) -> dict[str, Any]:
    """One validation error without its documentation link and without megabytes of input."""
    shown = {key: value for key, value in error.items() if key != "url"}
    if "input" in shown:
        shown["input"] = _without_secrets(shown["input"], error.get("loc", ()))
    if "input" in shown and len(text := _shown(shown["input"])) > INPUT_CHARS_MAX:
        shown["input"] = text[:INPUT_CHARS_MAX] + "…"
    return shown


def _without_secrets(value: Any, loc: Sequence[Any] = ()) -> Any:
    """The value without what must not come back in an answer, which clients log: keys, tokens and the like."""
    if _SECRET_FIELDS.intersection(str(part) for part in loc):
        return MASK
    if not isinstance(value, Mapping):
        return value
    if len(value) > INPUT_CHARS_MAX:
        return f"an object with {len(value)} fields"
    return {
        name: MASK if name in _SECRET_FIELDS else _without_secrets(each) if isinstance(each, Mapping) else each
        for name, each in value.items()
    }


def _shown(value: Any) -> str:
    """The value as Python writes it, or its beginning: to write all of a large one takes too long."""
    waiting, seen = [value], 0
    while waiting and seen <= INPUT_CHARS_MAX:
        one = waiting.pop()
        seen += len(one) + 1 if isinstance(one, str | bytes | list | dict) else 1
        if isinstance(one, list | dict) and seen <= INPUT_CHARS_MAX:
            waiting.extend(one if isinstance(one, list) else [*one, *one.values()])
    if seen <= INPUT_CHARS_MAX:
        return repr(value)
    return repr(value[: INPUT_CHARS_MAX + 1]) if isinstance(value, str | bytes) else _BEGINNING.repr(value)
