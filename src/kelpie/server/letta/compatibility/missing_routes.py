"""Routes of Letta that Kelpie does not have: the client gets the reason, with 501, instead of a bare 404.

Some come with a later version; some only made sense in Letta's cloud or belong to another vendor. Nothing here is a
route: existing routes are matched first, and only a path that matches none is looked up.
"""

import re

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kelpie.server.http.json_answer import JsonAnswer

_VENDOR = "Kelpie does not forward requests to a vendor's API; call the vendor directly."
_FILES = "Kelpie does not support folders and files yet; store the content in an archive."
_AGENT_FILES = "Kelpie does not support agent files yet."
_MCP = "Kelpie does not connect to MCP servers yet; it only stores their records."
_VENV = "There is no environment to rebuild: Kelpie installs each set of packages once and never changes it."

# The first pattern that fits the path counts.
_ABSENT: tuple[tuple[str, str], ...] = (
    (r"/v1/(anthropic|zai)/.*", _VENDOR),
    (r"/v1/git/.*", "Kelpie stores memory in its database, not in git; read and update blocks with /v1/blocks."),
    (r"/v1/environments.*", "Remote devices are part of Letta's cloud; Kelpie does not have them."),
    (r"/v1/voice-beta/.*", "Letta retired the voice endpoint; send messages to the agent instead."),
    (r"/v1/(folders|sources).*", _FILES),
    (r"/v1/agents/[^/]+/(folders|sources|files).*", _FILES),
    (r"/v1/agents/import|/v1/agents/[^/]+/export", _AGENT_FILES),
    (r"/v1/templates.*", "Kelpie does not support templates yet."),
    (r"/v1/providers.*", "Kelpie does not support adding providers over the API yet; set their keys instead."),
    (r"/v1/chat/completions", "Kelpie does not support the chat completions endpoint yet."),
    (r"/v1/agents/[^/]+/schedule.*", "Kelpie does not support schedules yet; send the message with cron."),
    (r"/v1/messages/batches.*", "Kelpie does not support batches yet; send the messages one by one."),
    (r"/v1/sandbox-config/local/recreate-venv", _VENV),
    (
        r"/v1/tools/generate-tool",
        "Kelpie does not let a model write tools; write the source code and create the tool yourself.",
    ),
    (r"/v1/sandbox-config/e2b/default", "Kelpie runs tools on its own machine and has no cloud sandbox."),
    (r"/v1/(mcp-servers|tools/mcp)/.*", _MCP),
    (r"/v1/embeddings/total_storage_size", "Kelpie does not report the size of stored embeddings yet."),
)
_PATTERNS = tuple((re.compile(pattern), why) for pattern, why in _ABSENT)


def why_absent(path: str) -> str | None:
    """The reason why Kelpie does not have this path of Letta's; None when Letta did not have it either."""
    return next((why for pattern, why in _PATTERNS if pattern.fullmatch(path)), None)


def register(app: FastAPI) -> None:
    app.add_exception_handler(HTTPException, _on_http_exception)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405) and (why := why_absent(request.url.path)):
        return JsonAnswer({"detail": why}, 501, {"x-should-retry": "false"})  # the SDKs would ask again
    return await http_exception_handler(request, error)
