"""The shapes of providers' replies, kept as facts in `recorded/`, and their streams as the providers frame them."""

import json
from pathlib import Path
from typing import Any

from kelpie.core.conversations.messages import Text
from kelpie.llm.provider.interface import Event, Reply, TextDelta, ToolCallDelta


def load(name: str) -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "recorded" / f"{name}.json").read_text())


def framed(*events: dict[str, Any]) -> list[str]:
    """Server-sent events that carry their type as their name."""
    return [f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events]


def same_as_deltas(given: list[Event]) -> Reply:
    """The reply at the end of a stream, after checking that what was streamed adds up to it."""
    *deltas, reply = given
    assert isinstance(reply, Reply)
    said = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert said == "".join(part.text for part in reply.content if isinstance(part, Text))
    for index, call in enumerate(reply.tool_calls):
        mine = [delta for delta in deltas if isinstance(delta, ToolCallDelta) and delta.index == index]
        assert (mine[0].id, mine[0].name) == (call.id, call.name)
        assert "".join(delta.arguments for delta in mine) == call.arguments
        assert all(delta.id is None and delta.name is None for delta in mine[1:])
    return reply
