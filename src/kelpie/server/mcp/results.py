"""Results of MCP methods: the text of a tool's result, its error, and what the stateless generation adds to each."""

from collections.abc import Mapping
from typing import Any

import orjson

from kelpie import __version__
from kelpie.mcp.protocol.envelope import META, SERVER_KEY
from kelpie.mcp.protocol.messages import COMPLETE

SERVER = {"name": "kelpie", "title": "Kelpie", "version": __version__}
CACHED_METHODS = frozenset(
    {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)
TTL_MS = 0  # lists change with every agent that is made
TEXT_CHARS_MAX = 200_000  # of one result


def tool_result(data: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a tool: JSON, as text and as structured content."""
    text = orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()
    if len(text) > TEXT_CHARS_MAX:
        return tool_error(f"The result has more than {TEXT_CHARS_MAX} characters. Ask for less.")
    return {"content": [{"type": "text", "text": text}], "structuredContent": dict(data), "isError": False}


def tool_error(text: str) -> dict[str, Any]:
    """The result of a tool that failed; the text is for the client's model."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def complete(method: str, result: Mapping[str, Any], *, stateless: bool) -> dict[str, Any]:
    """A result with the fields that its generation requires."""
    if not stateless:
        return dict(result)
    cached = {"ttlMs": TTL_MS, "cacheScope": "private"} if method in CACHED_METHODS else {}
    meta = {**(result.get(META) or {}), SERVER_KEY: SERVER}
    return {"resultType": COMPLETE, **cached, **result, META: meta}
