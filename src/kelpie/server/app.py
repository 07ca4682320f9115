"""The HTTP application: Letta's resources under /v1, Kelpie's own beside them, and the middleware around them."""

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.applications import Starlette
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from kelpie import __version__
from kelpie.accounts.sessions import Sessions
from kelpie.server.dashboard import registration as dashboard
from kelpie.server.edge.authentication import AuthenticationMiddleware
from kelpie.server.edge.cell_listener import CellServer
from kelpie.server.edge.cross_origin import AllowedOrigins, CrossOrigin
from kelpie.server.edge.guard import RequestGuard, RequestLog
from kelpie.server.http import errors
from kelpie.server.http.limits.body_limits import BodyLimits
from kelpie.server.http.routing.dispatch import Dispatch
from kelpie.server.http.routing.lazy_routers import LazyRouters
from kelpie.server.letta.compatibility import missing_routes
from kelpie.server.openai.error_shape import OpenAiErrors
from kelpie.server.pages import registration as pages
from kelpie.server.routers import ROUTERS

if TYPE_CHECKING:
    from kelpie.app import Kelpie

_ABOUT = (
    "A server for stateful LLM agents with memory and tools. It implements the Letta V1 REST API, so `letta-client` "
    "works with it. Routes and fields marked (Kelpie) are additions."
)


def create_app(kelpie: "Kelpie") -> "Application":
    """The application over a `Kelpie` that its caller starts and stops."""
    app = Application(title="Kelpie", version=__version__, description=_ABOUT, openapi_url=None)
    app.state.api = kelpie.api
    app.state.why_not_ready = kelpie.why_not_ready
    app.state.stopping = lambda: kelpie.stopping
    app.state.authenticator = kelpie.runtime.authenticator
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
    app.add_middleware(Dispatch, routes=app, routers=app.routers)
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
    """FastAPI without its outermost layers: `RequestLog` answers for uncaught errors, and nothing else sees them.

    Its routers are loaded when they are first needed.
    """

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self.routers = LazyRouters(ROUTERS, self.router.routes)

    @property
    def routes(self) -> list[BaseRoute]:
        """All routes."""
        self.routers.load_all()
        return self.router.routes

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
