"""HTTP without conveniences, for tests that send very many requests: httpx took longer over each than the server."""

import http.client
import json
import select
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status_code: int
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        return json.loads(self.content)


class PlainHttp:
    """A client of one server with one connection, which is made again where the server has closed it.

    A path is sent as it is given.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
        self._headers = dict(headers)

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Answer:
        return self.request("GET", path, params=params)

    def post(self, path: str, **sent: Any) -> Answer:
        return self.request("POST", path, **sent)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends a request with a body of JSON, of bytes, or none."""
        sent = self._headers | dict(headers or {})
        if json is not None:
            content, sent["Content-Type"] = _encoded(json), "application/json"
        if params:
            path = f"{path}?{urlencode(params, quote_via=quote)}"
        self._let_go_if_closed()
        try:
            self._connection.request(method, path, content, sent)
            answer = self._connection.getresponse()
            return Answer(answer.status, answer.read())
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def _let_go_if_closed(self) -> None:
        """Before a request nothing can have arrived but the end of the connection."""
        sock = self._connection.sock
        if sock is not None and select.select([sock], [], [], 0)[0]:
            self._connection.close()


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
