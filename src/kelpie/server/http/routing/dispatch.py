"""Dispatch of a request to its endpoint, past the router and the solver of FastAPI.

FastAPI tries the pattern of one route after the other, and solves, wraps and checks more for every request than most
endpoints cost. `RouteIndex` finds the route, and `Parameters` reads what a valid request gives. Everything else goes on
to FastAPI: an unknown path, a method that its path does not have, a body that is not JSON, an invalid parameter.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from inspect import signature
from json import JSONDecodeError
from typing import Any

from fastapi import FastAPI
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from kelpie.server.http.dependencies import LARGE
from kelpie.server.http.json_body import JsonRequest, JsonRoute
from kelpie.server.http.routing.lazy_routers import LazyRouters
from kelpie.server.http.routing.parameters import Parameters, Unreadable
from kelpie.server.http.routing.route_index import RouteIndex, scope_of

_JSON = b"application/json"


class Dispatch:
    """An ASGI application before that of FastAPI. It loads the routers that a request may need."""

    def __init__(self, app: ASGIApp, routes: FastAPI, routers: LazyRouters) -> None:
        self._app = app
        self._routes = routes
        self._routers = routers
        self._index = RouteIndex(())
        self._indexed = -1  # how many routers were loaded then
        self._endpoints: dict[int, _Endpoint | None] = {}  # by the identity of the route; None: for FastAPI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope.get("root_path"):
            await self._app(scope, receive, send)
            return
        self._routers.load_for(scope["path"])
        if self._indexed != self._routers.loaded:
            self._index, self._indexed = RouteIndex(self._routes.router.routes), self._routers.loaded
        found = self._index.find(scope["method"], scope["path"])
        if found is None or (endpoint := self._endpoint_of(found[0])) is None:
            await self._app(scope, receive, send)
            return
        scope.update(scope_of(found, self._routes.router))
        request = JsonRequest(scope, receive)
        try:
            response = await endpoint.answer(request)
        except Exception as error:  # answered as FastAPI would, or raised again
            handler = _handler_of(self._routes.exception_handlers, error)
            if handler is None:
                raise
            response = await handler(request, error)
        await response(scope, receive, send)

    def _endpoint_of(self, route: Route) -> "_Endpoint | None":
        key = id(route)
        if key not in self._endpoints:
            self._endpoints[key] = _endpoint(route)
        return self._endpoints[key]


class _Endpoint:
    """A route whose parameters are plain and which makes its answer itself."""

    def __init__(self, route: JsonRoute) -> None:
        """Raises Unreadable for parameters that are not plain."""
        self._route = route
        self._parameters = Parameters(route.dependant)

    async def answer(self, request: JsonRequest) -> Response:
        """Raises what the endpoint raises, and what FastAPI raises for an invalid request."""
        try:
            body = await _document(request) if self._parameters.has_body else None
            values = await self._parameters.read(request, body)
        except (Unreadable, JSONDecodeError, ClientDisconnect):
            response = await _judged(self._route, request)
        else:
            if LARGE in request.scope:
                await asyncio.sleep(0)
            response = await self._parameters.call(**values)
        return self._route.with_ignored(request, response)


def _endpoint(route: Route) -> _Endpoint | None:
    returned = signature(route.endpoint).return_annotation
    if not isinstance(route, JsonRoute) or not isinstance(returned, type) or not issubclass(returned, Response):
        return None
    try:
        return _Endpoint(route)
    except Unreadable:
        return None


async def _document(request: JsonRequest) -> Any:
    """The body as JSON; None when it is empty. Raises Unreadable, JSONDecodeError, ClientDisconnect, HTTPException."""
    if not await request.body():
        return None
    kind = next((value for name, value in request.scope["headers"] if name == b"content-type"), b"")
    if kind != _JSON and not kind.startswith(_JSON + b";"):
        raise Unreadable
    document = await request.json()
    if document is None:
        raise Unreadable
    return document


async def _judged(route: JsonRoute, request: JsonRequest) -> Response:
    """What FastAPI says to a request. It has read none of it yet that it could not read again."""
    async with AsyncExitStack() as stack:
        for name in ("fastapi_middleware_astack", "fastapi_inner_astack", "fastapi_function_astack"):
            request.scope[name] = stack
        return await route.handle_json(request)


def _handler_of(handlers: Mapping[Any, ExceptionHandler], error: Exception) -> Any:
    return next((handlers[kind] for kind in type(error).__mro__ if kind in handlers), None)
