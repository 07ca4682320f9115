"""Request bodies as JSON: parsed by orjson, bounded in depth and in the number of values, without NUL characters.

The values are counted before they are made: parsing and validating many small ones would hold up the event loop. A body
nested deeper than Kelpie can write back, or with text no database can hold, must be refused on arrival and not
when it is read. Bad JSON becomes a 422 like any other invalid body.
"""

import asyncio
from collections.abc import Callable, Coroutine
from json import JSONDecodeError
from typing import Any

import orjson
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from kelpie.core.json_size import is_deeper, value_count
from kelpie.server.http import route_access
from kelpie.server.http.dependencies import LARGE, lean

DEPTH_MAX = 64
VALUES_MAX = 50_000
LARGE_BYTES = 32 * 1024  # of a body: while it is read, parsed and validated, others get a turn between two steps

_TOO_MANY = f"The document has more than {VALUES_MAX} values; send it in several requests"


class JsonRequest(Request):
    """A request with Kelpie's own `json()`. Raises JSONDecodeError for anything that is not an acceptable document."""

    async def json(self) -> Any:
        raw = await self.body()
        if len(raw) <= LARGE_BYTES:
            document = parse(raw)
        else:
            self.scope[LARGE] = True
            await _check_values(raw)
            document = parse(raw)
            await asyncio.sleep(0)
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


async def _check_values(raw: bytes) -> None:
    """Raises JSONDecodeError for too many values."""
    count = value_count(raw, VALUES_MAX)
    while True:
        await asyncio.sleep(0)
        try:
            next(count)
        except StopIteration as ended:
            if ended.value:
                raise JSONDecodeError(_TOO_MANY, "", 0) from None
            return


def parse(raw: bytes) -> Any:
    """The document in a body. Raises JSONDecodeError."""
    value = orjson.loads(raw)
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX and is_deeper(value, DEPTH_MAX):
        raise JSONDecodeError(f"The document is nested deeper than {DEPTH_MAX} levels", "", 0)
    if b"\\u0000" in raw:
        value = _without_nul(value)
    return value


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, list):
        return [_without_nul(item) for item in value]
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    return value
