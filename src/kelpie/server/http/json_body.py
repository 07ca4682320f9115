"""Request bodies as JSON: parsed by orjson, bounded in depth and in the number of values, without NUL characters.

The values are counted before they are made: parsing and validating many small ones would hold up the event loop. A body
nested deeper than Kelpie can write back, or with text no database can hold, must be refused on arrival and not
when it is read. Bad JSON becomes a 422 like any other invalid body. Letta ignores fields that it does not know, and so
does Kelpie; a header of the answer names them.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from json import JSONDecodeError
from typing import Any, get_args

import orjson
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from kelpie.core.json_size import is_deeper, value_count
from kelpie.server.http import route_access
from kelpie.server.http.dependencies import LARGE, lean
from kelpie.server.http.headers.answer_headers import IGNORED_HEADER

DEPTH_MAX = 64
VALUES_MAX = 50_000
IGNORED_MAX = 10  # fields that the header names
IGNORED_CHARS_MAX = 64  # of each of their names
LARGE_BYTES = 32 * 1024  # of a body: while it is read, parsed and validated, others get a turn between two steps

_OF_PATH = frozenset({"path_regex", "path_format", "param_convertors"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_TOO_MANY = f"The document has more than {VALUES_MAX} values; send it in several requests"


class JsonRequest(Request):
    """A request with Kelpie's own `json()`. Raises JSONDecodeError for anything that is not an acceptable document."""

    fields: Iterable[Any] = ()  # of the document, once it is read

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
        if isinstance(document, dict):
            self.fields = document.keys()
        return document


class JsonRoute(APIRoute):
    """A route that reads its body through `JsonRequest`, and leaves to FastAPI only the dependencies that need it.

    FastAPI analyses it when it is first used: most servers use few of their routes, and the analysis of all takes a
    quarter of the CPU of a start and 9 MB.
    """

    handle_json: Callable[[JsonRequest], Coroutine[Any, Any, Response]]
    _known: frozenset[str] | None = None

    def __init__(self, path: str, endpoint: Callable[..., Any], **declared: Any) -> None:
        self.path = path
        self.endpoint = endpoint
        self.methods = {method.upper() for method in declared["methods"]}
        self.include_in_schema: bool = declared["include_in_schema"]
        self._declared: dict[str, Any] | None = declared

    def __getattr__(self, name: str) -> Any:
        """Finds what the pattern of the path or FastAPI's analysis sets."""
        if name in _OF_PATH:
            self.path_regex, self.path_format, self.param_convertors = compile_path(self.path)
        elif self._declared is not None:
            declared, self._declared = self._declared, None
            super().__init__(self.path, self.endpoint, **declared)
        else:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self, name)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        whole = self.dependant  # what the schema is made from
        self.dependant = lean(whole)
        self.handle_json = super().get_route_handler()
        self.dependant = whole
        self._known = _known_fields(whole) if _WITH_BODY & (self.methods or set()) else None

        async def handle(request: Request) -> Response:
            asked = JsonRequest(request.scope, request.receive)
            return self.with_ignored(asked, await self.handle_json(asked))

        return handle

    def with_ignored(self, request: JsonRequest, response: Response) -> Response:
        """The answer, with a header that names the fields of the body which it does not know."""
        if self._known is not None and (unknown := [name for name in request.fields if name not in self._known]):
            response.headers[IGNORED_HEADER] = _names(unknown)
        return response


def _known_fields(dependant: Dependant) -> frozenset[str] | None:
    """The fields of a body whose other fields are ignored; None for any other body."""
    if len(dependant.body_params) != 1:
        return None
    annotation: Any = dependant.body_params[0].field_info.annotation
    models = [
        one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, BaseModel)
    ]
    if len(models) != 1 or models[0].model_config.get("extra", "ignore") != "ignore":
        return None
    fields = models[0].model_fields
    return frozenset({*fields, *(field.alias for field in fields.values() if field.alias)})


def _names(unknown: list[str]) -> str:
    shown = [json.dumps(name[:IGNORED_CHARS_MAX])[1:-1] for name in unknown[:IGNORED_MAX]]
    return ", ".join(shown) + (", ..." if len(unknown) > IGNORED_MAX else "")


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
