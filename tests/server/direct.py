"""Requests straight to the application, for tests that send very many: httpx took as long over each as the server."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

Application = Callable[..., Awaitable[None]]


async def get(app: Application, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, str]:
    """The status and the text that a GET of a path with plain characters is answered with."""
    return await request(app, "GET", path, query, None, headers)


async def request(
    app: Application, method: str, path: str, query: Mapping[str, str], body: Any, headers: Mapping[str, str]
) -> tuple[int, str]:
    """The status and the text of the answer to a request, which has a JSON body unless `body` is None."""
    status, parts, asked = 0, list[bytes](), False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        kind, asked = "http.disconnect" if asked else "http.request", True
        return {"type": kind, "body": sent, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))

    sent = b"" if body is None else json.dumps(body).encode()
    described = {} if body is None else {"content-type": "application/json", "content-length": str(len(sent))}
    named = {"host": "127.0.0.1:8283", "accept": "*/*", **described, **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "headers": [(name.lower().encode(), value.encode()) for name, value in named.items()],
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": urlencode(query, quote_via=quote).encode(),
        "server": ("127.0.0.1", 8283),
        "client": ("127.0.0.1", 123),
        "root_path": "",
    }
    await app(scope, receive, send)
    return status, b"".join(parts).decode()
