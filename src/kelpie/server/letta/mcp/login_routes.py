"""Connecting to an MCP server step by step, with a login where it wants one, as a stream of events.

The person comes back from the authorization server without a key of Kelpie: the `state` of the login is the proof.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from kelpie.core.errors import KelpieError
from kelpie.server.http import sse
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.sse import EventStream
from kelpie.server.letta.mcp.body import OldServer, check_public, old_config
from kelpie.server.letta.mcp.shape import remote_shape
from kelpie.tools.mcp.logins import Step

router = resource("/mcp-servers/connect", "mcp-servers")
oauth_router = resource("/tools/mcp", "mcp-servers")

_PAGE = "<!doctype html><html lang=en><meta charset=utf-8><title>Kelpie</title><h1>{}</h1><p>{}</p></html>"
_SAFE = {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Referrer-Policy": "no-referrer"}


@router.get("/{mcp_server_id}", summary="Connect to an MCP server, with a login if it wants one", response_model=None)
async def connect_server(api: CallerApi, mcp_server_id: str, request: Request) -> EventStream:
    """The events are `connection_attempt`, `success`, `error`, `oauth_required`, `authorization_url` and
    `waiting_for_auth`."""
    server = await api.mcp_servers.get(mcp_server_id)
    return _stream(api, api.mcp_logins.connect(server, _base_url(request)))


@oauth_router.post("/servers/connect", summary="Connect to an MCP server that is not registered", response_model=None)
async def connect_unregistered(api: CallerApi, body: OldServer, request: Request) -> EventStream:
    """The same events. A login needs a registered server: its tokens are stored with it."""
    if not api.settings.mcp_private:
        check_public(body, "server_url")
    name, config = body.server_name, old_config(body)
    return _stream(api, api.mcp_servers.steps(name, config))


@oauth_router.get("/oauth/callback", summary="Take a person back from an authorization server", response_model=None)
async def oauth_callback(
    request: Request, state: str = "", code: str | None = None, iss: str | None = None, error: str | None = None
) -> Response:
    api = request.app.state.api()  # nobody in particular: the state says which login it is
    try:
        await api.mcp_logins.finish(state, code, iss, error)
    except KelpieError as problem:
        return _page(400, "The login failed", str(problem))
    return _page(200, "You are logged in", "Kelpie can use the MCP server now. You can close this page.")


@oauth_router.get("/oauth/client.json", summary="Show Kelpie as an OAuth client", response_model=None)
async def oauth_client(request: Request) -> JsonAnswer:
    return JsonAnswer(request.app.state.api().mcp_logins.client_document(_base_url(request)))


def _page(status: int, title: str, text: str) -> Response:
    return Response(_PAGE.format(escape(title), escape(text)), status, _SAFE, "text/html; charset=utf-8")


def _base_url(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _stream(api: CallerApi, steps: AsyncGenerator[Step]) -> EventStream:
    async def frames() -> AsyncIterator[bytes]:
        async with aclosing(steps):
            try:
                async for step in steps:
                    yield sse.frame(_step_shape(step))
            except KelpieError as error:  # the stream has begun: its events are the only answer
                yield sse.frame(_step_shape(Step("error", {"message": str(error)})))

    settings = api.settings
    return EventStream(frames(), ping=lambda: b": waiting\n\n", ping_s=settings.ping_s, stall_s=settings.stall_s)


def _step_shape(step: Step) -> dict[str, Any]:
    shape = {"event": step.event, **step.facts}
    return shape | {"tools": [remote_shape(tool, "meta") for tool in step.tools]} if step.event == "success" else shape
