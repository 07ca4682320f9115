"""Registration of the pages with the application, and the paths that need no login."""

from fastapi import FastAPI

from kelpie.server.pages import api_docs, start_page

OPEN_PATHS = frozenset({"/", "/start.css", "/favicon.svg", "/favicon.ico", *api_docs.PATHS})


def register(app: FastAPI) -> None:
    """Adds the routes of the pages."""
    routes = {
        "/": start_page.start,
        "/start.css": start_page.style,
        "/favicon.svg": start_page.icon,
        "/favicon.ico": start_page.icon,
        "/docs": api_docs.docs,
        "/docs/start.js": api_docs.start_script,
        "/docs/swagger-ui-bundle.js": api_docs.script,
        "/docs/swagger-ui.css": api_docs.styles,
        "/openapi.json": api_docs.openapi,
    }
    for path, endpoint in routes.items():
        app.add_route(path, endpoint, methods=["GET"], include_in_schema=False)
