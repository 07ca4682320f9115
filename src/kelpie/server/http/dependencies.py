"""Dependencies that need nothing but the request, called by Kelpie instead of being solved by FastAPI.

FastAPI looks for path, query, header and cookie parameters of every dependency on every request, which for those that
have none costs more than the dependency itself. The schema is made from what FastAPI knows and stays as it is; a
dependency that only serves the schema (`schema_only`) is not called at all.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from fastapi.dependencies.models import Dependant
from starlette.requests import Request

LARGE = "kelpie_large"  # key of a scope whose body took long to parse and to validate
_ASKED = "kelpie_request"  # a keyword that no endpoint has
_SCHEMA_ONLY = "kelpie_schema_only"

F = TypeVar("F", bound=Callable[..., Any])


def schema_only(dependency: F) -> F:
    """Marks a dependency that describes parameters which are read elsewhere."""
    setattr(dependency, _SCHEMA_ONLY, True)
    return dependency


def is_schema_only(dependency: object) -> bool:
    """Whether a dependency is never called."""
    return getattr(dependency, _SCHEMA_ONLY, False)


def lean(dependant: Dependant) -> Dependant:
    """The dependencies that FastAPI still has to solve; `call` fills in the rest after the parameters are validated."""
    called = [each for each in dependant.dependencies if not is_schema_only(each.call)]
    direct = [each for each in called if _needs_request_only(each)]
    solved = [lean(each) for each in called if not _needs_request_only(each)]
    call = dependant.call
    if not direct or call is None or not iscoroutinefunction(call):
        return replace(dependant, dependencies=[*direct, *solved])
    asked = dependant.request_param_name or _ASKED
    filled = _filled(call, direct, asked, keep=dependant.request_param_name is not None)
    return replace(dependant, dependencies=solved, request_param_name=asked, call=filled)


def _filled(
    call: Callable[..., Awaitable[Any]], direct: list[Dependant], asked: str, *, keep: bool
) -> Callable[..., Awaitable[Any]]:
    makers = [(each.name, each.call) for each in direct if each.call is not None]

    async def filled(**values: Any) -> Any:
        request: Request = values[asked] if keep else values.pop(asked)
        if LARGE in request.scope:
            await asyncio.sleep(0)
        for name, make in makers:
            made = await make(request)
            if name is not None:
                values[name] = made
        return await call(**values)

    return filled


def _needs_request_only(dependant: Dependant) -> bool:
    given = (
        *dependant.path_params,
        *dependant.query_params,
        *dependant.header_params,
        *dependant.cookie_params,
        *dependant.body_params,
        *dependant.dependencies,
        *(dependant.own_oauth_scopes or ()),
    )
    others = (
        dependant.response_param_name,
        dependant.background_tasks_param_name,
        dependant.security_scopes_param_name,
        dependant.http_connection_param_name,
        dependant.websocket_param_name,
    )
    asks = dependant.request_param_name is not None and not given and not any(others)
    return asks and iscoroutinefunction(dependant.call)
