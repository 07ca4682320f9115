"""Routes of Letta that Kelpie does not have: the client gets the reason, mostly with 501, instead of a bare 404; what
Letta itself had retired is a 410, as in Letta.

Some come with a later version; some only made sense in Letta's cloud or belong to another vendor. Nothing here is a
route: existing routes are matched first, and only a path that matches none is looked up.
"""

import re

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kelpie.server.http.errors import http_refusal, refused

_VENDOR = "Kelpie does not forward requests to a vendor's API; call the vendor directly."
_VENV = "There is no environment to rebuild: Kelpie installs each set of packages once and never changes it."

_NO_DEVICE = (
    "No device is connected to this server, so it cannot pass messages on to one. Send them to the agent with "
    "POST /v1/agents/{agent_id}/messages."
)

# The first pattern that fits the path counts.
_ABSENT: tuple[tuple[str, str], ...] = (
    (r"/v1/(anthropic|zai)/.*", _VENDOR),
    (r"/v1/git/.*", "Kelpie stores memory in its database, not in git; read and update blocks with /v1/blocks."),
    (r"/v1/sandbox-config/local/recreate-venv", _VENV),
    (
        r"/v1/tools/generate-tool",
        "Kelpie does not let a model write tools; write the source code and create the tool yourself.",
    ),
    (r"/v1/sandbox-config/e2b/default", "Kelpie runs tools on its own machine and has no cloud sandbox."),
)
_NOT_FOUND = ((r"/v1/environments/[^/]+/messages", _NO_DEVICE),)  # of a thing that Kelpie knows, but has none of
_RETIRED = ((r"/v1/voice-beta/.*", "Letta retired the voice endpoint; send messages to the agent instead."),)
_NO_RETRY = {"x-should-retry": "false"}  # the SDKs would ask again


def _reason(routes: tuple[tuple[str, str], ...], path: str) -> str | None:
    return next((why for pattern, why in routes if re.fullmatch(pattern, path)), None)


def register(app: FastAPI) -> None:
    app.add_exception_handler(HTTPException, _on_http_exception)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405):
        path = request.url.path
        if why := _reason(_NOT_FOUND, path):
            return refused("not_found", why, _NO_RETRY)
        if why := _reason(_RETIRED, path):
            return refused("route_retired", why, _NO_RETRY)
        if why := _reason(_ABSENT, path):
            return refused("route_not_supported", why, _NO_RETRY)
    return http_refusal(error)
