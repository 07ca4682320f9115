"""What the tools at /mcp do, each with the API of the caller and with the rights that the REST route would need.

An error of a tool is a result with the sentence of the error, so that the client's model can read it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kelpie.core.agents.agent import AgentQuery, Include
from kelpie.core.conversations.messages import Message, MessageSearch, Role
from kelpie.core.conversations.runs import Run
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import ConversationId
from kelpie.core.memory.blocks import Block
from kelpie.core.memory.passages import NewPassage, PassageQuery
from kelpie.core.paging import PAGE_BYTES_MAX, Page
from kelpie.core.time import as_datetime
from kelpie.server.http.match_reasons import matched_shape
from kelpie.server.http.route_access import listed_agents
from kelpie.server.mcp import turn_tasks
from kelpie.server.mcp.agent_summary import agent_summary
from kelpie.server.mcp.peer import Peer
from kelpie.server.mcp.results import tool_result

AGENTS_DEFAULT = 20
FOUND_DEFAULT = 5
TEXT_CHARS_MAX = 4000  # of one result of a search

Arguments = Mapping[str, Any]
Function = Callable[[Peer, Arguments], Awaitable[dict[str, Any]]]


async def list_agents(peer: Peer, arguments: Arguments) -> dict[str, Any]:
    peer.require("GET", "/v1/agents/")
    page = Page(arguments.get("limit") or AGENTS_DEFAULT, after=arguments.get("after"), bytes_max=PAGE_BYTES_MAX)
    query = AgentQuery(page=page, query_text=arguments.get("query"), only=listed_agents(peer.given))
    found = await peer.api.agents.page(query, Include(tags=True))
    return tool_result({"agents": [agent_summary(view) for view in found]})


async def start_turn(peer: Peer, arguments: Arguments) -> Run:
    """Stores the message of a call of `send_message`. Raises KelpieError."""
    agent_id, conversation = await peer.agent(arguments["agent"]), ""
    peer.require("POST", f"/v1/agents/{agent_id}/messages")
    if not arguments["message"].strip():
        raise InvalidInput("message", "is empty; say something")
    if named := arguments.get("conversation_id"):
        owner, conversation = await peer.api.conversations.lane(ConversationId.parse(named))
        if owner != agent_id:
            raise InvalidInput("conversation_id", "is a conversation of another agent")
    return await turn_tasks.begin(peer, agent_id, arguments["message"], arguments.get("message_id"), conversation)


async def read_blocks(peer: Peer, arguments: Arguments) -> dict[str, Any]:
    agent_id = await peer.agent(arguments["agent"])
    peer.require("GET", f"/v1/agents/{agent_id}/core-memory/blocks")
    if label := arguments.get("label"):
        found = [await peer.api.blocks.of_agent_by_label(agent_id, label)]
    else:
        found = await peer.api.blocks.of_agent(agent_id)
    return tool_result({"agent_id": agent_id, "blocks": [_block(block) for block in found]})


async def edit_block(peer: Peer, arguments: Arguments) -> dict[str, Any]:
    agent_id, label = await peer.agent(arguments["agent"]), arguments["label"]
    peer.require("PATCH", f"/v1/agents/{agent_id}/core-memory/blocks/{label}")
    block = await peer.api.blocks.edit_by_label(agent_id, label, _edit(arguments))
    return tool_result({"agent_id": agent_id, "block": _block(block)})


async def search_memory(peer: Peer, arguments: Arguments) -> dict[str, Any]:
    agent_id = await peer.agent(arguments["agent"])
    where, limit = arguments.get("where") or "everywhere", arguments.get("limit") or FOUND_DEFAULT
    shown: dict[str, Any] = {"agent_id": agent_id}
    if where != "messages":
        peer.require("GET", f"/v1/agents/{agent_id}/archival-memory/search")
        passages = await peer.api.archives.search_of_agent(agent_id, PassageQuery(arguments["query"], limit))
        shown["archive"] = [
            {
                "id": each.passage.id,
                "text": each.passage.text[:TEXT_CHARS_MAX],
                "tags": list(each.passage.tags),
                "created_at": as_datetime(each.passage.created_at).isoformat(),
                **matched_shape(each.hit),
            }
            for each in passages.found
        ]
    if where != "archive":
        peer.require("GET", f"/v1/agents/{agent_id}/messages")
        await peer.api.agents.get(agent_id, Include())  # raises NotFound for one of another organization
        wanted = MessageSearch(
            arguments["query"], limit, agent_id=agent_id, roles=(Role.user, Role.assistant), spoken=True
        )
        messages = await peer.api.message_search.search(wanted)
        shown["messages"] = [_message(message) | matched_shape(hit) for message, hit in messages.found]
    return tool_result(shown)


async def insert_memory(peer: Peer, arguments: Arguments) -> dict[str, Any]:
    agent_id = await peer.agent(arguments["agent"])
    peer.require("POST", f"/v1/agents/{agent_id}/archival-memory")
    if not arguments["text"].strip():
        raise InvalidInput("text", "is empty; write what to store")
    new = NewPassage(arguments["text"], tuple(arguments.get("tags") or ()))
    _, made = await peer.api.archives.remember(agent_id, new)
    return tool_result({"agent_id": agent_id, "id": made.id})


FUNCTIONS: Mapping[str, Function] = {
    "list_agents": list_agents,
    "read_memory_blocks": read_blocks,
    "edit_memory_block": edit_block,
    "search_memory": search_memory,
    "insert_memory": insert_memory,
}


def _edit(arguments: Arguments) -> Callable[[str], str]:
    """The change of a value that the arguments describe. Raises InvalidInput, now or when it is made."""
    value, old, new, added = (arguments.get(name) for name in ("value", "old_text", "new_text", "append"))
    if sum(each is not None for each in (value, old, added)) != 1 or (old is None) != (new is None):
        raise InvalidInput("value", "give either value, or old_text and new_text, or append")
    if value is not None:
        return lambda before: value
    if added is not None:
        return lambda before: f"{before}\n{added}" if before else added

    def replaced(before: str) -> str:
        if not old or (count := before.count(old)) == 0:
            raise InvalidInput("old_text", "does not occur in the block; read it again")
        if count > 1:
            raise InvalidInput("old_text", f"occurs {count} times; give more of the text around it")
        return before.replace(old, new or "")

    return replaced


def _block(block: Block) -> dict[str, Any]:
    return {
        "label": block.label,
        "value": block.value,
        "limit": block.limit,
        "description": block.description,
        "read_only": block.read_only,
    }


def _message(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "role": message.role.value,
        "text": message.said[:TEXT_CHARS_MAX],
        "created_at": as_datetime(message.created_at).isoformat(),
    }
