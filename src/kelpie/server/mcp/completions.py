"""Completions for MCP clients: agents and labels of memory blocks that fit what a person has typed so far."""

from collections.abc import Mapping
from typing import Any

from kelpie.core.agents.agent import AgentQuery, Include
from kelpie.core.errors import InvalidId
from kelpie.core.ids import AgentId
from kelpie.core.paging import PAGE_BYTES_MAX, Page
from kelpie.server.http.route_access import listed_agents
from kelpie.server.mcp.peer import Peer

SHOWN = 100  # as many as the protocol allows in one answer


async def values(peer: Peer, argument: str, typed: str, others: Mapping[str, Any]) -> list[str]:
    """What an argument of a prompt or of a resource's address can be. Arguments of other kinds have no completions."""
    if argument in ("agent", "agent_id"):
        return await _agents(peer, typed, ids=argument == "agent_id")
    if argument == "label":
        return await _labels(peer, typed, others.get("agent_id"))
    return []


async def _agents(peer: Peer, typed: str, *, ids: bool) -> list[str]:
    """Names of agents, or ids of agents with such names; also ids that begin so."""
    peer.require("GET", "/v1/agents/")
    is_id = typed.startswith("agent-")
    page = Page(SHOWN + 1, bytes_max=PAGE_BYTES_MAX)
    query = AgentQuery(page=page, query_text=None if is_id else typed or None, only=listed_agents(peer.given))
    found = [view.agent for view in await peer.api.agents.page(query, Include())]
    if is_id:
        return [agent.id for agent in found if agent.id.startswith(typed)]
    return [agent.id if ids else agent.name for agent in found]


async def _labels(peer: Peer, typed: str, agent: Any) -> list[str]:
    try:
        agent_id = AgentId.parse(agent if isinstance(agent, str) else "")
    except InvalidId:
        return []  # nobody knows yet whose blocks are meant
    peer.require("GET", f"/v1/agents/{agent_id}/core-memory/blocks")
    return [block.label for block in await peer.api.blocks.of_agent(agent_id) if block.label.startswith(typed)]


def shape(found: list[str]) -> dict[str, Any]:
    distinct = list(dict.fromkeys(found))
    return {"completion": {"values": distinct[:SHOWN], "hasMore": len(found) > SHOWN}}
