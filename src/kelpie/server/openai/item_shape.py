"""Items of a response: what the agent said, thought and called, and what it was asked.

The id of an item is made from the id of the stored message, so an item can be found again by its id.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kelpie.core.conversations.client_histories import answer_of, replies_of
from kelpie.core.conversations.messages import (
    Awaits,
    CallAnswer,
    Image,
    Message,
    NewMessage,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)
from kelpie.core.errors import InvalidId
from kelpie.core.ids import MessageId

_ITEM = re.compile(r"(msg|fc|rs)_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})(?:_(\d{1,4}))?")


def item_id(kind: str, message_id: str, place: int = 0) -> str:
    """The id of an item: `msg`, `fc` or `rs`, the message's uuid, and the place of a call in it."""
    compact = message_id.removeprefix(f"{MessageId.prefix}-").replace("-", "")
    return f"{kind}_{compact}" + (f"_{place}" if place else "")


def message_of(named: str) -> tuple[str, MessageId, int]:
    """The kind of an item, its message, and its place in it. Raises InvalidId."""
    found = _ITEM.fullmatch(named)
    if found is None:
        raise InvalidId("item", named)
    kind, *uuid, place = found.groups()
    return kind, MessageId.parse(f"{MessageId.prefix}-{'-'.join(uuid)}"), int(place or 0)


def noted(message_id: str) -> str:
    """Stands for the message whose item is the note about an approval."""
    return f"{message_id}_1"


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(message_id: str, text: str | None, status: str = "completed") -> dict[str, Any]:
    """An answer; without text it has only begun."""
    parts = [] if text is None else [text_part(text)]
    return {
        "id": item_id("msg", message_id),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": parts,
    }


def reasoning_item(message_id: str, text: str | None, status: str = "completed") -> dict[str, Any]:
    summary = [] if text is None else [{"type": "summary_text", "text": text}]
    return {"id": item_id("rs", message_id), "type": "reasoning", "status": status, "summary": summary}


def call_item(message_id: str, place: int, call: ToolCall, status: str = "completed") -> dict[str, Any]:
    return {
        "id": item_id("fc", message_id, place),
        "type": "function_call",
        "status": status,
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }


def client_calls(row: Message) -> list[ToolCall]:
    return [call for call in row.tool_calls if call.awaits is Awaits.client]


def output_items(rows: Sequence[Message]) -> list[dict[str, Any]]:
    """The items of the replies of a run."""
    found: list[dict[str, Any]] = []
    replies = replies_of(rows)
    for row in replies:
        if thoughts := "\n\n".join(part.text for part in row.content if isinstance(part, Reasoning)):
            found.append(reasoning_item(row.id, thoughts))
        if row.said:
            found.append(message_item(row.id, row.said))
    if replies and (note := answer_of(rows).note):
        found.append(message_item(noted(replies[-1].id), note))
    if replies:
        found += [call_item(replies[-1].id, at, call) for at, call in enumerate(client_calls(replies[-1]))]
    return found


def input_items(turn_id: str, messages: Iterable[NewMessage], answers: Iterable[CallAnswer]) -> list[dict[str, Any]]:
    """The items that a run was asked with."""
    found: list[dict[str, Any]] = []
    for answer in answers:
        if isinstance(answer, ToolReturn):
            number = len(found)
            found.append(
                {
                    "id": f"fco_{turn_id}_{number}",
                    "type": "function_call_output",
                    "status": "completed",
                    "call_id": answer.call_id,
                    "output": answer.text,
                }
            )
    for message in messages:
        head = {"id": f"in_{turn_id}_{len(found)}", "type": "message", "status": "completed"}
        if message.role is Role.assistant:
            text = "\n".join(part.text for part in message.content if isinstance(part, Text))
            found.append(head | {"role": "assistant", "content": [text_part(text)]})
        else:
            parts = [_input_part(part) for part in message.content]
            found.append(head | {"role": message.role.value, "content": parts})
    return found


def _input_part(part: Part) -> dict[str, Any]:
    if isinstance(part, Image):
        source = part.source
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "input_image", "image_url": url, "detail": source.get("detail") or "auto"}
    return {"type": "input_text", "text": part.text if isinstance(part, Text) else ""}
