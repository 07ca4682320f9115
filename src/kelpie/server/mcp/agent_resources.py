"""Agents as MCP resources: each agent with its memory blocks, a single block, and the latest messages."""

import re
from typing import Any
from urllib.parse import unquote

import orjson

from kelpie.core.agents.agent import AgentQuery, Include
from kelpie.core.conversations.messages import MessageQuery, Role
from kelpie.core.errors import InvalidInput, NotFound
from kelpie.core.ids import AgentId
from kelpie.core.paging import PAGE_BYTES_MAX, Page
from kelpie.core.time import as_datetime
from kelpie.server.http.route_access import listed_agents
from kelpie.server.mcp.agent_summary import agent_summary
from kelpie.server.mcp.peer import Peer

LISTED = 100  # agents on one page
MESSAGES = 50
TEXT_CHARS_MAX = 10_000  # of one message
_AGENT = re.compile(r"kelpie://agents/([^/?#]+)(?:/(messages)|/blocks/([^/?#]+))?")
_JSON, _PLAIN = "application/json", "text/plain"

TEMPLATES: tuple[dict[str, Any], ...] = (
    {
        "uriTemplate": "kelpie://agents/{agent_id}",
        "name": "agent",
        "title": "Agent",
        "description": "An agent and its memory blocks.",
        "mimeType": _JSON,
    },
    {
        "uriTemplate": "kelpie://agents/{agent_id}/blocks/{label}",
        "name": "memory_block",
        "title": "Memory block",
        "description": "The content of one memory block of an agent.",
        "mimeType": _PLAIN,
    },
    {
        "uriTemplate": "kelpie://agents/{agent_id}/messages",
        "name": "messages",
        "title": "Messages",
        "description": f"The latest {MESSAGES} messages of an agent, oldest first.",
        "mimeType": _JSON,
    },
)


async def listed(peer: Peer, cursor: str | None) -> dict[str, Any]:
    """One page of agents. Raises InvalidInput for a cursor that is not one."""
    peer.require("GET", "/v1/agents/")
    after = AgentId.parse(cursor) if cursor else None
    page = Page(LISTED + 1, after=after, bytes_max=PAGE_BYTES_MAX)
    found = await peer.api.agents.page(AgentQuery(page=page, only=listed_agents(peer.given)), Include())
    shown = [
        {
            "uri": f"kelpie://agents/{view.agent.id}",
            "name": view.agent.name,
            "title": view.agent.name,
            "mimeType": _JSON,
        }
        | ({"description": view.agent.description} if view.agent.description else {})
        for view in found[:LISTED]
    ]
    more = {"nextCursor": found[LISTED - 1].agent.id} if len(found) > LISTED else {}
    return {"resources": shown, **more}


async def read(peer: Peer, uri: str) -> dict[str, Any]:
    """The content of a resource. Raises NotFound, Forbidden."""
    match = _AGENT.fullmatch(uri)
    if match is None:
        raise NotFound("Resource", uri[:200])
    try:
        agent_id = AgentId.parse(unquote(match[1]))
    except InvalidInput:
        raise NotFound("Resource", uri[:200]) from None
    if match[2]:
        return _content(uri, _JSON, await _messages(peer, agent_id))
    if match[3]:
        peer.require("GET", f"/v1/agents/{agent_id}/core-memory/blocks")
        block = await peer.api.blocks.of_agent_by_label(agent_id, unquote(match[3]))
        return _content(uri, _PLAIN, block.value)
    peer.require("GET", f"/v1/agents/{agent_id}")
    view = await peer.api.agents.get(agent_id, Include(blocks=True, tags=True))
    blocks = [{"label": block.label, "value": block.value, "description": block.description} for block in view.blocks]
    return _content(uri, _JSON, _pretty({**agent_summary(view), "blocks": blocks}))


async def _messages(peer: Peer, agent_id: AgentId) -> str:
    peer.require("GET", f"/v1/agents/{agent_id}/messages")
    query = MessageQuery(limit=MESSAGES, descending=True, bytes_max=PAGE_BYTES_MAX)
    rows = await peer.api.histories.messages(agent_id, query)
    shown = [
        {
            "role": row.role.value,
            "text": row.said[:TEXT_CHARS_MAX],
            "created_at": as_datetime(row.created_at).isoformat(),
        }
        for row in rows
        if row.role in (Role.user, Role.assistant) and row.said
    ]
    return _pretty(shown)


def _content(uri: str, mime: str, text: str) -> dict[str, Any]:
    return {"contents": [{"uri": uri, "mimeType": mime, "text": text}]}


def _pretty(data: Any) -> str:
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()
