"""The HTTP application: Letta's resources under /v1, Kelpie's own beside them, and the middleware around them."""

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.applications import Starlette
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from kelpie import __version__
from kelpie.accounts.sessions import Sessions
from kelpie.server.dashboard import registration as dashboard
from kelpie.server.edge.authentication import AuthenticationMiddleware
from kelpie.server.edge.cell_listener import CellServer
from kelpie.server.edge.cross_origin import AllowedOrigins, CrossOrigin
from kelpie.server.edge.guard import RequestGuard, RequestLog
from kelpie.server.http import errors
from kelpie.server.http.dispatch import Dispatch
from kelpie.server.http.limits.body_limits import BodyLimits
from kelpie.server.kelpie import agents as agent_care
from kelpie.server.kelpie import (
    approvals,
    block_history,
    checkpoints,
    facts,
    ids,
    keys,
    permissions,
    projects,
    prompts,
    spending,
    working_memory,
)
from kelpie.server.kelpie import mcp as mcp_connections
from kelpie.server.kelpie import models as model_care
from kelpie.server.kelpie import runs as run_records
from kelpie.server.kelpie.operations import data, encryption, health, sandbox, usage
from kelpie.server.kelpie.operations import logs as recent_logs
from kelpie.server.kelpie.triggers import hooks, schedules
from kelpie.server.letta.accounts import access_token_routes, admin_routes, auth_routes
from kelpie.server.letta.agent_files import routes as agent_files
from kelpie.server.letta.agents import block_routes, identity_routes, tag_routes, template_routes
from kelpie.server.letta.agents import folder_routes as agent_folders
from kelpie.server.letta.agents import internal_routes as internal_agent_routes
from kelpie.server.letta.agents import routes as agents
from kelpie.server.letta.agents import tool_routes as agent_tool_routes
from kelpie.server.letta.archives import passage_routes
from kelpie.server.letta.archives import routes as archives
from kelpie.server.letta.batches import agent_routes as agent_batches
from kelpie.server.letta.batches import routes as batches
from kelpie.server.letta.blocks import routes as blocks
from kelpie.server.letta.compatibility import environment_routes, health_routes, missing_routes
from kelpie.server.letta.conversations import background_routes, cancel_routes, preview_routes, window_routes
from kelpie.server.letta.conversations import routes as conversations
from kelpie.server.letta.folders import routes as folders
from kelpie.server.letta.folders import source_routes as sources
from kelpie.server.letta.groups import message_routes
from kelpie.server.letta.groups import routes as groups
from kelpie.server.letta.identities import routes as identities
from kelpie.server.letta.mcp import login_routes as mcp_login_routes
from kelpie.server.letta.mcp import routes as mcp_servers
from kelpie.server.letta.mcp import routes_by_name as mcp_servers_by_name
from kelpie.server.letta.message_search import routes as messages_search
from kelpie.server.letta.messages import routes as messages
from kelpie.server.letta.models import routes as models
from kelpie.server.letta.providers import routes as providers
from kelpie.server.letta.runs import internal_routes, job_routes, step_routes
from kelpie.server.letta.runs import routes as runs
from kelpie.server.letta.schedules import routes as agent_schedules
from kelpie.server.letta.templates import routes as templates
from kelpie.server.letta.tools import routes as tools
from kelpie.server.letta.tools import run_routes, sandbox_routes
from kelpie.server.mcp import routes as mcp
from kelpie.server.openai import chat_routes, embedding_routes, model_routes, response_routes
from kelpie.server.openai.error_shape import OpenAiErrors
from kelpie.server.pages import registration as pages

if TYPE_CHECKING:
    from kelpie.app import Kelpie

_ABOUT = (
    "A server for stateful LLM agents with memory and tools. It implements the Letta V1 REST API, so `letta-client` "
    "works with it. Routes and fields marked (Kelpie) are additions."
)

_ROUTERS = (
    batches.router,  # before the routes that would take `batch` and `batches` for an id
    batches.kelpie_router,
    agent_batches.router,
    messages.router,
    health_routes.router,
    messages_search.router,
    templates.agent_router,
    agents.router,
    block_routes.router,
    block_routes.block_router,
    run_routes.agent_router,
    agent_tool_routes.router,
    archives.agent_router,
    agent_folders.folder_router,
    agent_folders.source_router,
    agent_folders.file_router,
    passage_routes.agent_router,
    passage_routes.embedding_router,
    working_memory.router,
    checkpoints.router,
    agent_files.router,
    identity_routes.router,
    identity_routes.identity_router,
    window_routes.router,
    identities.block_router,
    blocks.router,
    block_history.router,
    data.router,
    mcp_servers_by_name.router,
    run_routes.router,
    tools.router,
    mcp_login_routes.router,
    mcp_login_routes.oauth_router,
    mcp_servers.router,
    sandbox_routes.router,
    internal_agent_routes.agent_router,
    internal_agent_routes.block_router,
    template_routes.router,
    templates.router,
    environment_routes.router,
    runs.router,
    internal_routes.router,
    step_routes.router,
    step_routes.telemetry_router,
    cancel_routes.router,
    conversations.router,
    background_routes.router,
    groups.agent_router,
    preview_routes.router,
    groups.router,
    message_routes.router,
    job_routes.router,
    archives.router,
    folders.router,
    sources.router,
    passage_routes.router,
    identities.router,
    tag_routes.router,
    models.router,
    providers.router,
    model_care.router,
    mcp_connections.router,
    mcp_connections.task_router,
    agent_schedules.router,
    schedules.router,
    schedules.firing_router,
    hooks.router,
    hooks.all_router,
    hooks.delivery_router,
    projects.router,
    admin_routes.organization_router,
    admin_routes.user_router,
    access_token_routes.router,
    auth_routes.router,
    agent_care.router,
    approvals.router,
    approvals.agent_router,
    ids.router,
    prompts.router,
    run_records.router,
    keys.router,
    spending.router,
    spending.sum_router,
    spending.budget_router,
    facts.router,
    permissions.router,
    encryption.router,
    permissions.registry,
    sandbox.router,
    health.router,
    recent_logs.router,
    usage.router,
    usage.quota_router,
    mcp.router,
    chat_routes.router,
    chat_routes.letta_router,
    response_routes.router,
    embedding_routes.router,
    model_routes.router,
    model_routes.letta_router,
)


def create_app(kelpie: "Kelpie") -> FastAPI:
    """The application over a `Kelpie` that its caller starts and stops."""
    app = Application(title="Kelpie", version=__version__, description=_ABOUT, openapi_url=None)
    app.state.api = kelpie.api
    app.state.why_not_ready = kelpie.why_not_ready
    app.state.stopping = lambda: kelpie.stopping
    app.state.authenticator = kelpie.runtime.authenticator
    for router in _ROUTERS:
        app.router.routes.extend(router.routes)  # including them would analyse every route a second time
    app.state.models_configured = lambda: kelpie.runtime.models.configured
    pages.register(app)
    app.state.dashboard = kelpie.settings.dashboard
    if kelpie.settings.dashboard:
        app.state.sessions = Sessions(kelpie.world, kelpie.runtime.authenticator)
        dashboard.register(app)
    errors.register(app)
    missing_routes.register(app)
    settings = kelpie.settings
    app.state.allowed_origins = origins = AllowedOrigins(settings.allowed_origins)
    # The middleware added last is the first to see a request.
    runtime = kelpie.runtime
    app.add_middleware(Dispatch, routes=app)
    app.add_middleware(
        AuthenticationMiddleware,
        authenticator=runtime.authenticator,
        passports=runtime.passports,
        api=kelpie.api,
        quotas=runtime.quotas,
        processor_time=runtime.processor_time,
        pages=pages.OPEN_PATHS | (dashboard.open_paths() if settings.dashboard else frozenset()),
        sessions=origins if settings.dashboard else None,
    )
    app.add_middleware(LatestPrefix)
    app.add_middleware(CrossOrigin, allowed=origins, protected=settings.protected)
    app.add_middleware(
        RequestGuard,
        hosts=[settings.host],
        limits=BodyLimits(
            images=settings.body_bytes_max,
            plain=settings.json_bytes_max,
            uploads=settings.upload_bytes_max,
            hooks=settings.hook_bytes_max,
        ),
        stall_s=settings.stall_s,
        protected=settings.protected,
        origins=origins,
    )
    app.add_middleware(RequestLog, ids=kelpie.world.ids)
    app.add_middleware(OpenAiErrors)
    kelpie.connect_api(CellServer(app).serve)
    return app


class Application(FastAPI):
    """FastAPI without its outermost layers: `RequestLog` answers for uncaught errors, and nothing else sees them."""

    def build_middleware_stack(self) -> ASGIApp:
        handlers: Any = self.exception_handlers
        app: ASGIApp = ExceptionMiddleware(AsyncExitStackMiddleware(self.router), handlers)
        for each in reversed(self.user_middleware):
            app = each.cls(app, *each.args, **each.kwargs)
        return app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Starlette.__call__(self, scope, receive, send)


class LatestPrefix:
    """Rewrites `/latest` to `/v1`; the alias is not in the schema."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/latest/"):
            scope = {**scope, "path": f"/v1/{scope['path'].removeprefix('/latest/')}"}
        await self._app(scope, receive, send)
