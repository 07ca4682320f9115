"""The API documentation at `/docs`: Swagger UI, from the files of an installed package.

The page and the OpenAPI document need no login: they describe the product, not the data of this server. Calls from the
page need a credential like all others; people enter it on the page, which keeps it until it is closed.
"""

from functools import lru_cache
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.pages.page_answer import answer, page
from kelpie.world.files.package_files import read_package_file

_PACKAGE = "fastapi_swagger"
_FILES = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kelpie API</title>
<link rel="icon" href="favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = """\
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  docExpansion: "none",
  validatorUrl: null,
});
"""
_HEADERS = {"Cache-Control": "max-age=3600"}

PATHS = ("/docs", "/docs/start.js", "/openapi.json", *(f"/docs/{name}" for name in _FILES))


async def docs(request: Request) -> Response:
    # Swagger UI sets styles of elements, which a policy cannot tell from a style that someone has planted.
    return page(_PAGE, script_src="'self'", connect_src="'self'", style_src="'self' 'unsafe-inline'")


async def start_script(request: Request) -> Response:
    return answer(_START.encode(), "text/javascript; charset=utf-8")


async def script(request: Request) -> Response:
    return _file("swagger-ui-bundle.js")


async def styles(request: Request) -> Response:
    return _file("swagger-ui.css")


async def openapi(request: Request) -> Response:
    return JsonAnswer(document(request.app))


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of the application, which is built once, with the way to log in."""
    found = app.openapi()
    found.setdefault("components", {})["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "The server's password, or an API key."}
    }
    found["security"] = [{}, {"bearer": []}]
    return found


@lru_cache(maxsize=len(_FILES))
def _content(name: str) -> bytes:
    return read_package_file(_PACKAGE, f"resources/{name}")


def _file(name: str) -> Response:
    return answer(_content(name), _FILES[name], _HEADERS)
