"""The start page at `/`: what is running here, and where to go next. A client that asks for JSON gets the same as JSON.

It is open to every client, so it must never show agents, models by name, settings or secrets.
"""

from html import escape

from starlette.requests import Request
from starlette.responses import Response

from kelpie import __version__
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.letta.compatibility.health_routes import LETTA_VERSION
from kelpie.server.pages.page_answer import answer, page

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kelpie</title>
<link rel="icon" href="favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="start.css">
</head>
<body>
<main>
<h1>Kelpie is running</h1>
<table>
<tr><th>Kelpie version</th><td>{kelpie_version}</td></tr>
<tr><th>Compatible with Letta</th><td>{letta_version}</td></tr>
<tr><th>Address</th><td><code>{address}</code></td></tr>
<tr><th>Models configured</th><td>{models}</td></tr>
<tr><th>Login</th><td>{login}</td></tr>
</table>
<h2>Next steps</h2>
<ul>
<li>Chat in a terminal: <code>kelpie demo</code> creates an agent, <code>kelpie chat demo</code> talks to it.</li>
<li>Use an SDK: <code>Letta(base_url="{address}")</code> of the Python package <code>letta-client</code>.</li>
<li>Try the API: <a href="docs">API documentation</a> (<a href="openapi.json">OpenAPI document</a>).</li>
<li>Read the guides: <code>docs/quickstart.md</code> in the source code, then <code>docs/models.md</code>.</li>
<li>Check the installation: <code>kelpie doctor</code>.</li>
</ul>
</main>
</body>
</html>
"""
_STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; color: #1d2b33; background: #f6f8f9; }
main { max-width: 44rem; margin: 3rem auto; padding: 0 1rem; }
table { border-collapse: collapse; }
th { text-align: left; font-weight: normal; color: #53656f; padding: 0.2rem 2rem 0.2rem 0; }
code { background: #e6ecef; border-radius: 3px; padding: 0.1rem 0.3rem; overflow-wrap: anywhere; }
a { color: #00617f; }
@media (prefers-color-scheme: dark) {
  body { color: #e2eaee; background: #12191d; }
  th { color: #9db0ba; }
  code { background: #233038; }
  a { color: #6cc7e6; }
}
"""
_ICON = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#00617f"/>\
<path d="M10 7v18M22 7 10 17l12 8" fill="none" stroke="#fff" stroke-width="4" stroke-linecap="round" \
stroke-linejoin="round"/></svg>
"""


async def start(request: Request) -> Response:
    """The start page, or its facts as JSON."""
    configured: bool = request.app.state.models_configured()
    protected: bool = request.app.state.authenticator.protected
    address = str(request.base_url).rstrip("/")
    if wants_json(request.headers.get("accept", "")):
        facts = {
            "name": "Kelpie",
            "version": LETTA_VERSION,
            "kelpie_version": __version__,
            "address": address,
            "models_configured": configured,
            "login_required": protected,
            "dashboard": request.app.state.dashboard,
            "api_docs": f"{address}/docs",
            "openapi": f"{address}/openapi.json",
        }
        return JsonAnswer(facts)
    return page(
        _PAGE.format(
            kelpie_version=escape(__version__),
            letta_version=escape(LETTA_VERSION),
            address=escape(address),
            models="yes" if configured else "no, only the built-in demo model; see docs/models.md",
            login="a password or an API key" if protected else "none, because the server listens on this machine only",
        )
    )


def wants_json(accept: str) -> bool:
    """Checks whether a client prefers JSON to a page: it names JSON, and no page before it."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    found = [kind for kind in kinds if kind in ("application/json", "text/html")]
    return found[:1] == ["application/json"]


async def style(request: Request) -> Response:
    return answer(_STYLE.encode(), "text/css; charset=utf-8")


async def icon(request: Request) -> Response:
    return answer(_ICON.encode(), "image/svg+xml")
