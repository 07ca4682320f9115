"""Routes of Letta that Kelpie does not have: a client that asks for one is told why, with 501, instead of a bare 404.

Some come with a later version; some only made sense in Letta's cloud or are another vendor's to answer. Nothing here
is a route: what exists is found first, and only what is found nowhere is looked up.
"""

import re

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kelpie.server.http.json_answer import JsonAnswer

_VENDOR = "Kelpie does not pass requests on to a vendor's API; point the vendor's own client at the vendor."
_FILES = "Folders and files are not in this version of Kelpie yet; put what an agent should know into an archive."
_AGENT_FILES = "Agent files are not in this version of Kelpie yet."
_MCP = "Talking to MCP servers is not in this version of Kelpie yet; only their records are kept."
_VENV = "There is no environment to remake: every set of packages is installed apart, once, and never changes."

# The first that fits the path counts.
_ABSENT: tuple[tuple[str, str], ...] = (
    (r"/v1/(anthropic|zai)/.*", _VENDOR),
    (r"/v1/git/.*", "Kelpie keeps memory in its database, not in git; read and change blocks with /v1/blocks."),
    (r"/v1/environments.*", "Remote devices were part of Letta's cloud; a self-hosted Kelpie has none of them."),
    (r"/v1/voice-beta/.*", "The voice endpoint was retired by Letta itself; send to the agent's messages instead."),
    (r"/v1/(folders|sources).*", _FILES),
    (r"/v1/agents/[^/]+/(folders|sources|files).*", _FILES),
    (r"/v1/agents/import|/v1/agents/[^/]+/export", _AGENT_FILES),
    (r"/v1/templates.*", "Templates are not in this version of Kelpie yet."),
    (r"/v1/providers.*", "Adding providers over the API is not in this version of Kelpie yet; set their keys instead."),
    (r"/v1/chat/completions", "The chat completions endpoint is not in this version of Kelpie yet."),
    (r"/v1/agents/[^/]+/schedule.*", "Schedules are not in this version of Kelpie yet; let cron send the message."),
    (r"/v1/messages/batches.*", "Batches are not in this version of Kelpie yet; send the messages one by one."),
    (r"/v1/sandbox-config/local/recreate-venv", _VENV),
    (r"/v1/tools/generate-tool", "Kelpie does not let a model write tools unseen; write the source and register it."),
    (r"/v1/sandbox-config/e2b/default", "Kelpie runs tools on its own machine and does not use a cloud sandbox."),
    (r"/v1/(mcp-servers|tools/mcp)/.*", _MCP),
    (r"/v1/embeddings/total_storage_size", "No embeddings are stored in this version of Kelpie yet."),
    (r"/v1/_internal_search/cache-warm", "There is no cache to warm: searching is by words, in the database itself."),
)
_PATTERNS = tuple((re.compile(pattern), why) for pattern, why in _ABSENT)


def why_absent(path: str) -> str | None:
    """Why Kelpie does not have this path of Letta's; None when Letta did not have it either."""
    return next((why for pattern, why in _PATTERNS if pattern.fullmatch(path)), None)


def register(app: FastAPI) -> None:
    app.add_exception_handler(HTTPException, _on_http_exception)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405) and (why := why_absent(request.url.path)):
        return JsonAnswer({"detail": why}, 501, {"x-should-retry": "false"})  # the SDKs would ask again
    return await http_exception_handler(request, error)
