"""What an agent file has of an agent, or of one of its conversations: it is compared with the rows on the disk. Nothing
may change meanwhile.
"""

import json
from collections.abc import Mapping
from typing import Any

from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.checks.list_checks import Ask, Get

AGENTS_MAX = 2
LANES_MAX = 2
_AGENTS = f"SELECT id, name FROM agents WHERE organization_id = ? ORDER BY id DESC LIMIT {AGENTS_MAX}"
_LANES = (
    "SELECT id FROM conversations t WHERE agent_id = ? AND deleted_at IS NULL "
    "ORDER BY EXISTS (SELECT 1 FROM conversation_blocks c WHERE c.conversation_id = t.id) DESC, id DESC "
    f"LIMIT {LANES_MAX}"
)
_BLOCKS = "SELECT b.label, b.value FROM agent_blocks a JOIN blocks b ON b.id = a.block_id WHERE a.agent_id = ?"
_OWN_BLOCKS = (
    "SELECT b.label, b.value FROM conversation_blocks c JOIN blocks b ON b.id = c.block_id WHERE c.conversation_id = ?"
)
_TOOLS = "SELECT t.name FROM agent_tools a JOIN tools t ON t.id = a.tool_id WHERE a.agent_id = ?"
_CONTEXT = (
    "SELECT m.content FROM context c JOIN messages m ON m.id = c.message_id "
    "WHERE c.agent_id = ? AND c.conversation_id = ? AND m.role = 'user' ORDER BY c.position"
)


async def exports_are_right(get: Get, ask: Ask, organization: str) -> None:
    """The agent files of some agents and of their conversations have what is stored. Raises Broken."""
    for agent_id, name in ask(_AGENTS, organization):
        for lane in ("", *(row[0] for row in ask(_LANES, agent_id))):
            query = f"?conversation_id={lane}" if lane else ""
            document = await get(f"/v1/agents/{agent_id}/export{query}")
            wanted = {"name": name, **_stored(ask, agent_id, lane)}
            if (found := _exported(document)) != wanted:
                differs = [part for part in wanted if wanted[part] != found[part]]
                told = ", ".join(f"{part} are {found[part]} and should be {wanted[part]}" for part in differs)
                raise Broken("an agent file has what is stored", f"{agent_id} {lane}: {told}")


def _stored(ask: Ask, agent_id: str, lane: str) -> dict[str, Any]:
    blocks = {**dict(ask(_BLOCKS, agent_id)), **dict(ask(_OWN_BLOCKS, lane))}
    return {
        "blocks": blocks,
        "tools": sorted(name for (name,) in ask(_TOOLS, agent_id)),
        "context": [_text(json.loads(content)) for (content,) in ask(_CONTEXT, agent_id, lane)],
    }


def _exported(document: Mapping[str, Any]) -> dict[str, Any]:
    agent = document["agents"][0]
    blocks = {block["id"]: block for block in document["blocks"]}
    tools = {tool["id"]: tool["name"] for tool in document["tools"]}
    messages = {message["id"]: message for message in agent["messages"]}
    context = [messages[each] for each in agent["in_context_message_ids"]]
    return {
        "name": agent["name"],
        "blocks": {blocks[each]["label"]: blocks[each]["value"] for each in agent["block_ids"]},
        "tools": sorted(tools[each] for each in agent["tool_ids"]),
        "context": [_text(message["content"]) for message in context if message["role"] == "user"],
    }


def _text(content: Any) -> str:
    return "".join(part.get("text") or "" for part in content or ())
