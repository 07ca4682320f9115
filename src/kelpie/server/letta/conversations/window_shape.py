"""The usage of a context window, and a message as it is stored, in Letta's JSON."""

from typing import Any

from kelpie.agent.compaction.window_usage import WindowUsage
from kelpie.core.conversations.messages import Message, ToolReturn
from kelpie.core.token_estimates import estimate
from kelpie.server.http.times import timestamp
from kelpie.server.letta.messages.shape import part_shape


def overview_shape(seen: WindowUsage) -> dict[str, Any]:
    """The usage without its messages, which may be large."""
    agent = seen.agent
    return {
        "context_window_size_max": seen.window,
        "context_window_size_current": seen.tokens,
        "num_messages": len(seen.history),
        "num_archival_memory": seen.archived,
        "num_recall_memory": seen.said,
        "num_tokens_external_memory_summary": estimate(seen.facts),
        "external_memory_summary": seen.facts,
        "num_tokens_system": estimate(agent.system),
        "system_prompt": agent.system,
        "num_tokens_core_memory": estimate(seen.memory),
        "core_memory": seen.memory,
        "num_tokens_memory_filesystem": 0,
        "memory_filesystem": None,
        "num_tokens_tool_usage_rules": 0,
        "tool_usage_rules": None,
        "num_tokens_directories": estimate(seen.directories),
        "directories": seen.directories or None,
        "num_tokens_summary_memory": seen.summary_tokens,
        "summary_memory": seen.summary,
        "num_tokens_functions_definitions": seen.tool_tokens,
        "functions_definitions": [{"type": "function", "function": told} for told in seen.functions],
        "num_tokens_messages": seen.history_tokens,
    }


def stored_message(message: Message, user_id: str | None) -> dict[str, Any]:
    """A message as it is stored, not as clients see it."""
    first = next(iter(message.tool_returns), None)
    return {
        "id": message.id,
        "agent_id": message.agent_id,
        "role": message.role.value,
        "content": [part_shape(part) for part in message.content],
        "model": None,
        "name": message.name,
        "tool_calls": [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
        or None,
        "tool_call_id": None if first is None else first.call_id,
        "tool_returns": [_return(result) for result in message.tool_returns],
        "step_id": message.step_id,
        "run_id": message.run_id,
        "otid": message.otid,
        "group_id": message.group_id,
        "sender_id": message.sender_id,
        "batch_item_id": None,
        "conversation_id": message.conversation_id,
        "is_err": message.is_err or None,
        "approval_request_id": None,
        "approve": None,
        "denial_reason": None,
        "approvals": [],
        "created_by_id": user_id,
        "last_updated_by_id": user_id,
        "created_at": timestamp(message.created_at),
        "updated_at": timestamp(message.created_at),
    }


def _return(result: ToolReturn) -> dict[str, Any]:
    return {
        "tool_call_id": result.call_id,
        "status": "success" if result.ok else "error",
        "stdout": list(result.stdout) if result.stdout is not None else None,
        "stderr": list(result.stderr) if result.stderr is not None else None,
        "func_response": result.text,
    }
