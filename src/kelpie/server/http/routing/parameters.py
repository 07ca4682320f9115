"""Parameters of an endpoint, read from a valid request without FastAPI's solver.

FastAPI declares the parameters, makes the schema from them and words every refusal. Its solver decides anew for every
request what kind of parameter each is, which costs more than a small request does otherwise; here that is decided once.
Where a request has a parameter missing or one that does not validate, `read` says so, and FastAPI judges the request.
"""

from collections.abc import Awaitable, Callable
from datetime import date
from enum import Enum
from inspect import iscoroutinefunction
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from fastapi import params
from fastapi.dependencies.models import Dependant
from pydantic import Json
from pydantic.fields import FieldInfo
from starlette.datastructures import QueryParams
from starlette.requests import Request

from kelpie.server.http.dependencies import is_schema_only

_PLAIN = (NoneType, bool, int, float, str, Enum, date)  # types of parameters; ids are strings, and a datetime is a date


class Unreadable(Exception):
    """FastAPI has to judge this request."""


class _Field:
    """One parameter of the path, the query or the headers."""

    __slots__ = ("_default", "_required", "_several", "_validate", "alias", "name")

    def __init__(self, field: Any, *, several: bool) -> None:
        self.name: str = field.name
        self.alias: str = field.alias
        self._several = several
        self._required = field.field_info.is_required()
        self._default = field.default
        self._validate: Callable[..., tuple[Any, list[Any]]] = field.validate

    def read(self, given: Any) -> Any:
        """Its value in the given parameters. Raises Unreadable."""
        value = (given.getlist(self.alias) or None) if self._several else given.get(self.alias)
        return self.of(value)

    def of(self, value: Any) -> Any:
        if value is None:
            if self._required:
                raise Unreadable
            return self._default
        found, errors = self._validate(value)
        if errors:
            raise Unreadable
        return found


class Parameters:
    """The parameters of one endpoint, or of one dependency of it."""

    def __init__(self, dependant: Dependant) -> None:
        """Raises Unreadable for a kind of parameter that only FastAPI reads."""
        if not iscoroutinefunction(dependant.call) or _asks_for_more(dependant):
            raise Unreadable
        self.call: Callable[..., Awaitable[Any]] = dependant.call
        self._request_name = dependant.request_param_name
        self._path = [_field(field) for field in dependant.path_params]
        self._query = [_field(field) for field in dependant.query_params]
        self._headers = [_field(field) for field in dependant.header_params]
        self._body = _body_field(dependant.body_params)
        called = [each for each in dependant.dependencies if not is_schema_only(each.call)]
        self._dependencies = [(each.name, Parameters(each)) for each in called]
        if any(each.has_body for _, each in self._dependencies):
            raise Unreadable
        self._unasked: dict[str, Any] | None = None  # the values of the query's parameters when there is no query

    @property
    def has_body(self) -> bool:
        return self._body is not None

    async def read(self, request: Request, body: Any = None) -> dict[str, Any]:
        """The parameters by name; `body` is None where the request has none. Raises Unreadable."""
        values: dict[str, Any] = {}
        for field in self._path:
            values[field.name] = field.read(request.path_params)
        if self._query:
            values |= self._of_query(request)
        for field in self._headers:
            values[field.name] = field.read(request.headers)
        if self._body is not None:
            values[self._body.name] = self._body.of(body)
        if self._request_name is not None:
            values[self._request_name] = request
        for name, dependency in self._dependencies:
            found = await dependency.call(**await dependency.read(request))
            if name is not None:
                values[name] = found
        return values

    def _of_query(self, request: Request) -> dict[str, Any]:
        if request.scope["query_string"]:
            asked = request.query_params
            return {field.name: field.read(asked) for field in self._query}
        if self._unasked is None:
            nothing = QueryParams("")
            self._unasked = {field.name: field.read(nothing) for field in self._query}
        return self._unasked


def _field(field: Any) -> _Field:
    info: FieldInfo = field.field_info
    is_json = any(type(each) is Json for each in info.metadata)
    if info.validation_alias not in (None, field.alias) or info.validate_default or is_json or not _is_shared(field):
        raise Unreadable
    return _Field(field, several=_is_list(info.annotation))


def _body_field(fields: list[Any]) -> _Field | None:
    """The one model that is the whole body; None where there is no body. Raises Unreadable for any other body."""
    if not fields:
        return None
    info = fields[0].field_info
    if len(fields) > 1 or type(info) is not params.Body or info.embed or not _is_shared(fields[0]):
        raise Unreadable
    return _Field(fields[0], several=False)


def _is_shared(field: Any) -> bool:
    return field.field_info.is_required() or isinstance(field.default, _PLAIN)  # so no endpoint can change it


def _is_list(annotation: Any) -> bool:
    """Whether a parameter may be given several times. Raises Unreadable for types other than plain ones and lists."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_list(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return True in {_is_list(one) for one in get_args(annotation)}
    if origin is list:
        return True
    if origin is Literal or (isinstance(annotation, type) and issubclass(annotation, _PLAIN)):
        return False
    raise Unreadable


def _asks_for_more(dependant: Dependant) -> bool:
    """Whether a dependency asks for what only FastAPI has."""
    return bool(
        dependant.cookie_params
        or dependant.own_oauth_scopes
        or dependant.response_param_name
        or dependant.background_tasks_param_name
        or dependant.security_scopes_param_name
        or dependant.http_connection_param_name
        or dependant.websocket_param_name
    )
