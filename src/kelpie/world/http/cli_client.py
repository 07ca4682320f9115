"""A small blocking HTTP client for the command line, on the standard library alone so that it is quick to import.

It talks to a Kelpie server only; calls to model providers go through `world.http.port`. Answers are bounded in size.
"""

import http.client
import json
import secrets
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from kelpie.core.errors import ConfigurationError, KelpieError

ANSWER_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 8 * 1024 * 1024
UNAUTHORIZED = 401
WRONG_SERVER = (404, 405, 501)  # the statuses for an unknown path
REQUEST_ID = "X-Request-Id"  # in every answer of Kelpie


class Unreachable(KelpieError):
    """No server answered."""


class ConnectionLost(Unreachable):
    """The connection ended in the middle of a stream."""


class ErrorResponse(KelpieError):
    """The server answered with an error; `code` is the server's word for it, if it has one."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Client:
    """One connection per call: the calls are few, and the server may restart in between."""

    def __init__(self, base_url: str, timeout_s: float = 10.0, credential: str | None = None) -> None:
        """Raises ConfigurationError for an address that is not http or https."""
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError("url", f"'{base_url}' is not a URL such as http://127.0.0.1:8283")
        self.base_url = base_url.rstrip("/")
        self._host, self._port, self._prefix = parts.hostname, parts.port, parts.path.rstrip("/")
        self._secure = parts.scheme == "https"
        self._timeout_s = timeout_s
        self.credential = credential

    def get(self, path: str, **query: str | int | Sequence[str]) -> Any:
        """The JSON at this path. Raises Unreachable or ErrorResponse."""
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        connection, answer = self._send("GET", target, None, self._timeout_s)
        try:
            return _json(_body(answer))
        finally:
            connection.close()

    def post(self, path: str, body: Any, timeout_s: float | None = None) -> Any:
        """The server's answer to this JSON. Raises Unreachable or ErrorResponse."""
        connection, answer = self._send("POST", path, body, timeout_s or self._timeout_s)
        try:
            return _json(_body(answer))
        finally:
            connection.close()

    def put(self, path: str, body: Any) -> Any:
        """Replaces a resource and returns the answer. Raises Unreachable or ErrorResponse."""
        return self._change("PUT", path, body)

    def patch(self, path: str, body: Any) -> Any:
        """The server's answer to this change. Raises Unreachable or ErrorResponse."""
        return self._change("PATCH", path, body)

    def _change(self, method: str, path: str, body: Any) -> Any:
        connection, answer = self._send(method, path, body, self._timeout_s)
        try:
            return _json(_body(answer))
        finally:
            connection.close()

    def delete(self, path: str) -> Any:
        """The server's answer to the removal. Raises Unreachable or ErrorResponse."""
        connection, answer = self._send("DELETE", path, None, self._timeout_s)
        try:
            told = _body(answer)
            return _json(told) if told else None
        finally:
            connection.close()

    def events(self, path: str, body: Any, silence_s: float, method: str = "POST") -> Generator[tuple[str, Any]]:
        """Asks and yields (event name, JSON) of the stream until its end mark.

        Raises Unreachable or ErrorResponse; ConnectionLost when nothing arrives for `silence_s` or the stream ends
        early.
        """
        connection, answer = self._send(method, path, body, silence_s)
        try:
            name = ""
            while line := answer.readline(LINE_BYTES_MAX):
                field, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
                value = value.removeprefix(" ")
                if field == "event":
                    name = value
                elif field == "data" and value == "[DONE]":
                    return
                elif field == "data":
                    yield name, _json(value.encode())
                elif field == "" and not value:
                    name = ""
            raise ConnectionLost("the server closed the stream before the turn ended")
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost(f"the connection to {self.base_url} was lost: {_reason(error)}") from error
        finally:
            connection.close()

    def upload(self, path: str, file_name: str, content: bytes, timeout_s: float) -> Any:
        """Posts a file as the field `file` of a form, and returns the answer. Raises Unreachable or ErrorResponse."""
        mark = secrets.token_hex(16)
        name = file_name.replace("\\", "\\\\").replace('"', '\\"')
        head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = head.encode("utf-8", "replace") + content + f"\r\n--{mark}--\r\n".encode()
        headers = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        return _json(next(self.documents(path, body, headers, timeout_s)))

    def wait_while(self, path: str, key: str, values: Sequence[str], every_s: float) -> Any:
        """The JSON at this path when its key has none of these values any more. Raises Unreachable, ErrorResponse."""
        while (found := self.get(path))[key] in values:
            time.sleep(every_s)
        return found

    def documents(self, path: str, body: bytes, headers: Mapping[str, str], silence_s: float) -> Generator[bytes]:
        """Posts a JSON document and yields those of the answer: one, or several of an event stream; none of an empty
        one.

        The answer to a wrong document is yielded like any other if it is JSON-RPC. Raises Unreachable or ErrorResponse;
        ConnectionLost when nothing arrives for `silence_s`.
        """
        connection, answer = self._open("POST", path, body, headers, silence_s)
        try:
            if answer.status >= 400 and (answer.status == UNAUTHORIZED or REQUEST_ID not in answer.headers):
                raise self._refused("POST", path, answer)
            if answer.headers.get_content_type() == "text/event-stream":
                while line := answer.readline(LINE_BYTES_MAX):
                    if line.startswith(b"data:"):
                        yield line[5:].strip()
            elif data := _body(answer):
                if answer.status >= 400 and b'"jsonrpc"' not in data:
                    raise _told(answer, data)
                yield data
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost(f"the connection to {self.base_url} was lost: {_reason(error)}") from error
        finally:
            connection.close()

    def _send(
        self, method: str, path: str, body: Any, timeout_s: float
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        data = None if body is None else json.dumps(body).encode()
        connection, answer = self._open(method, path, data, {}, timeout_s)
        if answer.status >= 400:
            error = self._refused(method, path, answer)
            connection.close()
            raise error
        return connection, answer

    def _open(
        self, method: str, path: str, data: bytes | None, more: Mapping[str, str], timeout_s: float
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Raises Unreachable."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout_s)
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **more}
        if self.credential is not None:
            headers["Authorization"] = f"Bearer {self.credential}".encode().decode("latin-1")  # UTF-8 on the wire
        try:
            connection.request(method, self._prefix + path, data, headers)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(
                f"no server answers at {self.base_url} ({_reason(error)}); `kelpie server start` starts one"
            ) from error

    def _refused(self, method: str, path: str, answer: http.client.HTTPResponse) -> ErrorResponse:
        """The error in an answer."""
        if answer.status == UNAUTHORIZED:
            data = _body(answer)
            # A provider that refused its key is passed on with its status.
            return _told(answer, data) if b'"error"' in data else ErrorResponse(answer.status, self._how_to_get_in())
        if answer.status in WRONG_SERVER and answer.headers.get(REQUEST_ID) is None:
            other = f"{self.base_url} is not a Kelpie server: it answered {answer.status} to {method} {path}"
            return ErrorResponse(answer.status, other)
        return _refusal(answer)

    def _how_to_get_in(self) -> str:
        if self.credential is None:
            return f"{self.base_url} requires authentication. Set KELPIE_API_KEY to an API key or the server password."
        return (
            f"{self.base_url} rejected the key or password. It may be wrong, revoked or expired. "
            "Set KELPIE_API_KEY to a valid one."
        )


def _body(answer: http.client.HTTPResponse) -> bytes:
    try:
        data = answer.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"the connection was lost during the answer: {_reason(error)}") from error
    if len(data) > ANSWER_BYTES_MAX:
        raise ErrorResponse(answer.status, f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
    return data


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        raise Unreachable(f"this is not a Kelpie server: it answered {data[:80]!r} instead of JSON") from None


def _refusal(answer: http.client.HTTPResponse) -> ErrorResponse:
    """The server's own error message, as a sentence."""
    return _told(answer, _body(answer))


def _told(answer: http.client.HTTPResponse, data: bytes) -> ErrorResponse:
    try:
        told: Any = json.loads(data)
        if "error" in told:  # a model's provider or an MCP server failed; the detail of the latter is its kind
            kind = {"detail": None} if told["error"].get("type") == "mcp_connection_error" else {}
            return ErrorResponse(answer.status, error_sentence(told["error"] | kind))
        detail: Any = told.get("message") or told["detail"]  # a request that does not validate has both
        if "message" in detail and not isinstance(detail, str):
            return ErrorResponse(answer.status, str(detail["message"]), detail.get("code"))
        return ErrorResponse(answer.status, detail if isinstance(detail, str) else _invalid_fields(detail))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ErrorResponse(answer.status, f"the server answered {answer.status} {answer.reason}")


def error_sentence(error: Mapping[str, Any]) -> str:
    """The message of an error with what stands behind it, and the remedy."""
    detail = None if error.get("type") == "mcp_connection_error" else error.get("detail")  # there a word for programs
    told = [error.get("message"), detail, error.get("hint")]
    message, detail, hint = (str(word).rstrip(".") if word else "" for word in told)
    what = ": ".join(dict.fromkeys(filter(None, (message, detail))))
    return ". ".join(dict.fromkeys(filter(None, (what, hint)))) or "the turn failed"


def _invalid_fields(errors: Sequence[Mapping[str, Any]]) -> str:
    """The errors of a request that does not validate, each with the place of its field."""
    return "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in errors)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__
