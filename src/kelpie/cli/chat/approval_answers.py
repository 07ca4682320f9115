"""Answers to tool calls that wait, in the form that the server takes."""

from collections.abc import Mapping
from typing import Any


def waiting_calls(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls of a request that have no answer yet."""
    return [call for call in request["tool_calls"] if call["waits_for"]]


def approval(call_id: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The answer that lets a call run, with other arguments if they are given."""
    return {"type": "approval", "tool_call_id": call_id, "approve": True} | (
        {"arguments": dict(arguments)} if arguments is not None else {}
    )


def denial(call_id: str, reason: str | None = None) -> dict[str, Any]:
    """The answer that denies a call; the model reads the reason."""
    return {"type": "approval", "tool_call_id": call_id, "approve": False} | ({"reason": reason} if reason else {})
