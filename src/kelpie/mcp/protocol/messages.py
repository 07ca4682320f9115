"""JSON-RPC 2.0 messages of MCP: requests, notifications, results and errors, and how they are read and written.

Reading checks the envelope only. What a method's parameters must be is the business of who answers it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002  # up to 2025-11-25
HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
URL_ELICITATION_REQUIRED = -32042  # 2025-11-25 only

COMPLETE = "complete"  # values of `resultType`
INPUT_REQUIRED = "input_required"
TASK = "task"

TOOLS_CHANGED = "notifications/tools/list_changed"
SUBSCRIBED = "notifications/subscriptions/acknowledged"  # the first message of a subscription

RequestId = str | int


@dataclass(frozen=True, slots=True)
class Request:
    id: RequestId
    method: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def wire(self) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": dict(self.params)}


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def wire(self) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": self.method, "params": dict(self.params)}


@dataclass(frozen=True, slots=True)
class Result:
    id: RequestId
    result: Mapping[str, Any]

    def wire(self) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "result": dict(self.result)}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error answer. `id` is None if that of the request could not be read."""

    id: RequestId | None
    code: int
    message: str
    data: Any = None

    def wire(self) -> dict[str, Any]:
        error = {"code": self.code, "message": self.message} | ({} if self.data is None else {"data": self.data})
        return {"jsonrpc": "2.0", "id": self.id, "error": error}


Message = Request | Notification | Result | Failure


class NotAMessage(ValueError):
    """The data is no JSON-RPC message; the text says why. `code` is the error code for its sender."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def encode(message: Message) -> bytes:
    return orjson.dumps(message.wire())


def decode(text: bytes | str) -> Message:
    """Raises NotAMessage. A batch, which only 2025-03-26 had, is none."""
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise NotAMessage(PARSE_ERROR, "it is not JSON") from None
    return read(data)


def read(data: Any) -> Message:
    """The message in parsed JSON. Raises NotAMessage."""
    if not isinstance(data, dict):
        raise NotAMessage(INVALID_REQUEST, "it is not a JSON object")
    if data.get("jsonrpc") != "2.0":
        raise NotAMessage(INVALID_REQUEST, 'it lacks "jsonrpc": "2.0"')
    if "method" in data:
        return _call(data)
    if "error" in data:
        return _failure(data)
    result = data.get("result")
    if not isinstance(result, dict):
        raise NotAMessage(INVALID_REQUEST, "it has neither a method nor a result that is an object")
    return Result(_id(data), result)


def _call(data: dict[str, Any]) -> Request | Notification:
    method, params = data["method"], data.get("params")
    if not isinstance(method, str):
        raise NotAMessage(INVALID_REQUEST, "its method is not text")
    if params is not None and not isinstance(params, dict):
        raise NotAMessage(INVALID_PARAMS, "its params are not an object")
    if "id" not in data:
        return Notification(method, params or {})
    return Request(_id(data), method, params or {})


def _failure(data: dict[str, Any]) -> Failure:
    error = data["error"]
    if not isinstance(error, dict) or not _is_int(error.get("code")):
        raise NotAMessage(INVALID_REQUEST, "its error has no code")
    message = error.get("message")
    answered = None if data.get("id") is None else _id(data)
    return Failure(answered, error["code"], message if isinstance(message, str) else "", error.get("data"))


def _id(data: dict[str, Any]) -> RequestId:
    found = data.get("id")
    if isinstance(found, str) or (isinstance(found, int) and not isinstance(found, bool)):
        return found
    raise NotAMessage(INVALID_REQUEST, "its id is neither text nor a whole number")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
