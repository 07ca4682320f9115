"""The text of a message, whatever its type."""

from typing import Any

SHOWN_MAX = 300  # characters of an earlier message


def text_of(content: Any) -> str:
    """The text of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])


def message_text(message: dict[str, Any]) -> str:
    """Content, reasoning, tool calls or tool results of a message."""
    kind = message["message_type"]
    if kind in ("tool_call_message", "approval_request_message"):
        calls = message.get("tool_calls") or [message["tool_call"]]
        return ", ".join(f"{call['name']} {call['arguments']}" for call in calls)
    if kind == "tool_return_message":
        results = message.get("tool_returns") or [message]
        return ", ".join(text_of(result["tool_return"]) for result in results)
    if kind == "approval_response_message":
        answers = message.get("approvals") or [message]
        return ", ".join("approved" if answer.get("approve") else "denied" for answer in answers)
    return text_of(message.get("content") or message.get("reasoning") or message.get("summary") or "")


def past_text(message: dict[str, Any]) -> str:
    """The beginning of an earlier message, on one line."""
    flat = " ".join(message_text(message).split())
    return flat if len(flat) <= SHOWN_MAX else f"{flat[:SHOWN_MAX]}…"
