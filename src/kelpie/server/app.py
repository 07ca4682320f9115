"""The HTTP application: Letta's resources under /v1, our own under /v1/kelpie, and what guards them."""

from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kelpie import __version__
from kelpie.server import errors
from kelpie.server.auth import Auth
from kelpie.server.cells import CellServer
from kelpie.server.guard import Guard, Trace
from kelpie.server.kelpie import agents as agent_care
from kelpie.server.kelpie import (
    block_history,
    checkpoints,
    data,
    facts,
    keys,
    permissions,
    sandbox,
    spending,
    working_memory,
)
from kelpie.server.kelpie import models as model_care
from kelpie.server.letta import (
    absent,
    access_tokens,
    admin,
    agents,
    archives,
    auth,
    background,
    blocks,
    cancelling,
    conversations,
    drafts,
    group_messages,
    groups,
    health,
    identities,
    internal_runs,
    internal_templates,
    internal_twins,
    jobs,
    mcp_servers,
    messages,
    messages_search,
    models,
    passages,
    runs,
    sandbox_configs,
    steps,
    tags,
    tool_runs,
    tools,
    windows,
)
from kelpie.server.letta.search_shape import MODE_HEADER, NOTE_HEADER

if TYPE_CHECKING:
    from kelpie.app import Kelpie

_ABOUT = (
    "A server on which stateful agents live, remember and use tools. It speaks the Letta V1 REST API, "
    "so `letta-client` works against it; what is marked (Kelpie) is an addition."
)
_LOCAL_ORIGIN = r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?"
_ANY_ORIGIN = ".*"  # no page has a credential unless it was given one: there are no cookies

_ROUTERS = (
    messages.router,  # the first is the cheapest to reach, and nothing is asked for as often
    health.router,
    messages_search.router,
    agents.router,
    blocks.agent_router,
    tool_runs.agent_router,
    tools.agent_router,
    archives.agent_router,
    passages.agent_router,
    working_memory.router,
    checkpoints.router,
    identities.agent_router,
    windows.router,
    identities.block_router,
    blocks.router,
    block_history.router,
    data.router,
    mcp_servers.old_router,
    tool_runs.router,
    tools.router,
    mcp_servers.router,
    sandbox_configs.router,
    internal_twins.agent_router,
    internal_twins.block_router,
    internal_templates.router,
    runs.router,
    internal_runs.router,
    steps.router,
    steps.telemetry_router,
    cancelling.router,
    conversations.router,
    background.router,
    groups.agent_router,
    drafts.router,
    groups.router,
    group_messages.router,
    jobs.router,
    archives.router,
    passages.router,
    identities.router,
    tags.router,
    models.router,
    model_care.router,
    admin.organization_router,
    admin.user_router,
    access_tokens.router,
    auth.router,
    agent_care.router,
    keys.router,
    spending.router,
    facts.router,
    permissions.router,
    permissions.registry,
    sandbox.router,
)


def create_app(kelpie: "Kelpie") -> FastAPI:
    """The application over a product that is started and stopped by whoever made it."""
    app = FastAPI(title="Kelpie", version=__version__, description=_ABOUT, redoc_url=None)
    app.state.kelpie = kelpie
    for router in _ROUTERS:
        app.router.routes.extend(router.routes)  # including them would analyse every route a second time
    app.add_api_route("/", _to_docs, include_in_schema=False)
    errors.register(app)
    absent.register(app)
    settings = kelpie.settings
    # The one added last is the first to see a request.
    app.add_middleware(Auth, kelpie=kelpie)
    app.add_middleware(Latest)
    app.add_middleware(
        CORSMiddleware,
        allow_origin_regex=_ANY_ORIGIN if settings.protected else _LOCAL_ORIGIN,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["X-Request-Id", MODE_HEADER, NOTE_HEADER],
    )
    app.add_middleware(
        Guard,
        hosts=[settings.host],
        body_bytes_max=settings.body_bytes_max,
        stall_s=settings.stall_s,
        protected=settings.protected,
    )
    app.add_middleware(Trace, ids=kelpie.world.ids)
    kelpie.broker.api = CellServer(app).serve
    return app


class Latest:
    """`/latest` is another name for `/v1`, and not in the schema."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/latest/"):
            scope = {**scope, "path": f"/v1/{scope['path'].removeprefix('/latest/')}"}
        await self._app(scope, receive, send)


async def _to_docs() -> Response:
    return RedirectResponse("/docs")
