"""Routes of the dashboard, and those of its paths that need no login: they show no data."""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from kelpie.server.dashboard import session
from kelpie.server.dashboard.files import DashboardFile, dashboard_files
from kelpie.server.pages import start_page
from kelpie.server.pages.page_answer import answer

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
_PAGE_HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_FILE_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable"}


def open_paths() -> frozenset[str]:
    """Paths that every client may ask for; `/session` checks the credential itself."""
    return frozenset({session.PATH, *dashboard_files().files})


def register(app: FastAPI) -> None:
    """Adds the routes of the dashboard. The page takes the place of the start page."""
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", None) != "/"]
    app.add_route("/", page, methods=["GET"], include_in_schema=False)
    app.add_route("/dashboard/{version}/{name:path}", file, methods=["GET"], include_in_schema=False)
    app.add_route(session.PATH, session.show, methods=["GET"], include_in_schema=False)
    app.add_route(session.PATH, session.sign_in, methods=["POST"], include_in_schema=False)
    app.add_route(session.PATH, session.sign_out, methods=["DELETE"], include_in_schema=False)


async def page(request: Request) -> Response:
    """The page; a client that asks for JSON gets the facts of the start page."""
    if start_page.wants_json(request.headers.get("accept", "")):
        return await start_page.start(request)
    return _sent(request, dashboard_files().page, _PAGE_HEADERS)


async def file(request: Request) -> Response:
    found = dashboard_files().files.get(request.url.path)
    if found is None:
        return answer(b"This file belongs to another version of Kelpie; reload the page.\n", "text/plain", status=404)
    return _sent(request, found, _FILE_HEADERS)


def _sent(request: Request, found: DashboardFile, headers: dict[str, str]) -> Response:
    headers = headers | {"ETag": found.tag, "Vary": "Accept, Accept-Encoding"}
    if found.tag in request.headers.get("if-none-match", ""):
        return answer(b"", found.media_type, headers, status=304)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return answer(found.compressed, found.media_type, headers | {"Content-Encoding": "gzip"})
    return answer(found.content, found.media_type, headers)
