"""Messages that a search found, as Letta's clients see them: flat, or as the row that is stored."""

from typing import Any

from kelpie.core.messages import Message, Role
from kelpie.server.letta.message_shape import part_shape
from kelpie.server.letta.times import timestamp

RANK_OFFSET = 60  # how much the first place counts more than the next

_KINDS = {Role.system: "system_message", Role.assistant: "assistant_message"}


def found_shape(message: Message) -> dict[str, Any]:
    """One result of a search over all agents."""
    return {
        "message_id": message.id,
        "message_type": _KINDS.get(message.role, "user_message"),
        "content": message.said,
        "agent_id": message.agent_id,
        "conversation_id": message.conversation_id,
        "created_at": timestamp(message.created_at),
    }


def ranked_shape(message: Message, rank: int) -> dict[str, Any]:
    """One result with the place it came at; there is no second list to be fused with."""
    return {
        "embedded_text": message.said,
        "message": row_shape(message),
        "fts_rank": rank,
        "vector_rank": None,
        "rrf_score": 1 / (RANK_OFFSET + rank),
    }


def row_shape(message: Message) -> dict[str, Any]:
    """The row as it is stored, in Letta's words."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    returns = [
        {
            "tool_call_id": given.call_id,
            "status": "success" if given.ok else "error",
            "stdout": given.stdout,
            "stderr": given.stderr,
            "func_response": given.text,
        }
        for given in message.tool_returns
    ]
    return {
        "created_by_id": None,
        "last_updated_by_id": None,
        "created_at": timestamp(message.created_at),
        "updated_at": timestamp(message.created_at),
        "id": message.id,
        "agent_id": message.agent_id,
        "model": None,
        "role": message.role,
        "content": [part_shape(part) for part in message.content],
        "name": message.name,
        "tool_calls": calls or None,
        "tool_call_id": message.tool_returns[0].call_id if len(message.tool_returns) == 1 else None,
        "step_id": message.step_id,
        "run_id": message.run_id,
        "otid": message.otid,
        "tool_returns": returns,
        "group_id": message.group_id,
        "sender_id": message.sender_id,
        "batch_item_id": None,
        "conversation_id": message.conversation_id,
        "is_err": True if message.is_err else None,
        "approval_request_id": None,
        "approve": None,
        "denial_reason": None,
        "approvals": None,
    }
