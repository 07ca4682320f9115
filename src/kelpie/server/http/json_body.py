"""Request bodies as JSON: parsed by orjson, bounded in depth, without NUL characters.

A body nested deeper than Kelpie can write back, or with text no database can hold, must be refused on arrival and not
when it is read. Bad JSON becomes a 422 like any other invalid body.
"""

from collections.abc import Callable, Coroutine
from json import JSONDecodeError
from typing import Any

import orjson
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from kelpie.server.http import route_access
from kelpie.server.http.dependencies import lean

DEPTH_MAX = 64


class JsonRequest(Request):
    """A request with Kelpie's own `json()`. Raises JSONDecodeError for anything that is not an acceptable document."""

    async def json(self) -> Any:
        document = parse(await self.body())
        route_access.check_body(self.scope.get("pass"), self.scope["path"], document)
        return document


class JsonRoute(APIRoute):
    """A route that reads its body through `JsonRequest`, and leaves to FastAPI only the dependencies that need it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        whole = self.dependant  # what the schema is made from
        self.dependant = lean(whole)
        handle = super().get_route_handler()
        self.dependant = whole

        async def handle_json(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json


def parse(raw: bytes) -> Any:
    """The document in a body. Raises JSONDecodeError."""
    value = orjson.loads(raw)
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX:  # otherwise it cannot be deeper than the bound
        _check_depth(value)
    if b"\\u0000" in raw:
        value = _without_nul(value)
    return value


def _check_depth(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    if any(isinstance(node, dict | list) for node in level):
        raise JSONDecodeError(f"The document is nested deeper than {DEPTH_MAX} levels", "", 0)


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, list):
        return [_without_nul(item) for item in value]
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    return value
