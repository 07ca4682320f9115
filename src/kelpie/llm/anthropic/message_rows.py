"""Rows of a history as Anthropic's messages.

Each row's blocks are encoded once and cached with it. Consecutive rows of one side become one message, in which the
results of tools come first, because the protocol requires all of them at once and before anything else.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kelpie.core.conversations.messages import HiddenReasoning, Image, Message, Part, Reasoning, Role, Text, ToolCall
from kelpie.llm.provider.interface import PreparedHistory, PreparedMessage
from kelpie.llm.wire.image_visibility import LOST
from kelpie.llm.wire.json_bytes import array, dumps, kept

WIRE = "anthropic"
USER, ASSISTANT = b"user", b"assistant"
CACHED = b',"cache_control":{"type":"ephemeral"}}'

# A conversation has to begin and to end with the user's side.
OPENING = dumps({"type": "text", "text": "(The conversation begins.)"})
CLOSING = dumps({"type": "text", "text": "(Go on.)"})

_SIDE = "anthropic side"
_RESULTS = b"results of tools"
_OTHERS_SECRET = "gAAAA"  # prefix of OpenAI's encrypted thoughts; no other provider can read them
_ID = re.compile(r"[^a-zA-Z0-9_-]")


def encode_messages(rows: Sequence[PreparedMessage]) -> orjson.Fragment:
    """The messages; the last block is marked as the end of the cacheable prefix."""
    closed: list[bytes | bytearray] = []
    last = _Open(USER, [], [])
    if isinstance(rows, PreparedHistory):
        beginning = rows.beginning(WIRE)
        last = (beginning.open or last).copy()
        if added := b",".join(_grouped(rows.unencoded(WIRE), last)):
            beginning.closed += b"," + added if beginning.closed else added
        beginning.count, beginning.open = rows.settled, last.copy()
        if beginning.closed:
            closed.append(beginning.closed)
        rows = rows.unsettled
    closed += _grouped(rows, last)
    if last.side is ASSISTANT:
        closed.append(last.message())
        last = _Open(USER, [], [CLOSING])
    closed.append(last.message().removesuffix(b"}]}") + CACHED + b"]}")
    return array(closed)


@dataclass(slots=True)
class _Open:
    """The message that the next row may be joined with; on the user's side, results come first."""

    side: bytes
    results: list[bytes]
    rest: list[bytes]

    def copy(self) -> "_Open":
        return _Open(self.side, self.results[:], self.rest[:])

    def message(self) -> bytes:
        return _message(self.side, self.results, self.rest) if self.results or self.rest else _OPENING


def _grouped(rows: Sequence[PreparedMessage], last: _Open) -> Iterator[bytes]:
    """The messages that the rows close, one after the other; what is open stays in `last`."""
    for row in rows:
        blocks = encode_row(row)
        if not blocks:
            continue
        whose = row.wire[_SIDE]
        if whose is not last.side and not (whose is _RESULTS and last.side is USER):
            yield last.message()
            last.side, last.results, last.rest = ASSISTANT if whose is ASSISTANT else USER, [], []
        (last.results if whose is _RESULTS else last.rest).append(blocks)


def _message(side: bytes, results: list[bytes], rest: list[bytes]) -> bytes:
    return b'{"role":"%b","content":[%b]}' % (side, b",".join(results + rest))


_OPENING = _message(USER, [], [OPENING])


def encode_row(row: PreparedMessage, *, thoughts: bool = True) -> bytes:
    """The blocks of a row, separated by commas; empty when it has none. `thoughts` false drops them for good."""
    encoded = row.wire.get(WIRE)
    if encoded is None or not thoughts:
        encoded = kept(_blocks(row.message, thoughts))
        row.wire[WIRE] = encoded
        row.wire[_SIDE] = _side(row.message)
    return encoded


def has_thoughts(message: Message) -> bool:
    """Checks whether the row contains thoughts that only the provider can verify."""
    return any(_thought(part) is not None for part in message.content)


def _side(message: Message) -> bytes:
    """The side that the row belongs to; the user's side has two kinds of rows."""
    if message.tool_returns:
        return _RESULTS
    return ASSISTANT if message.tool_calls or message.role is Role.assistant else USER


def _blocks(message: Message, thoughts: bool) -> Iterator[Mapping[str, Any]]:
    if message.tool_returns:
        for given in message.tool_returns:
            content: object = given.text
            if given.images:
                content = [{"type": "text", "text": given.text}, *(_image(image.source) for image in given.images)]
            result = {"type": "tool_result", "tool_use_id": _safe(given.call_id), "content": content}
            yield result if given.ok else {**result, "is_error": True}
    elif message.role is Role.system:
        if message.text.strip():
            yield {"type": "text", "text": f"<system>\n{message.text}\n</system>"}
    elif _side(message) is ASSISTANT:
        yield from _said(message, thoughts)
    else:
        for part in message.content:
            yield from _given(part)


def _said(message: Message, thoughts: bool) -> Iterator[Mapping[str, Any]]:
    # A thought that nothing follows is refused.
    thoughts = thoughts and bool(message.tool_calls or message.text.strip())
    for part in message.content:
        if isinstance(part, Text) and part.text.strip():
            yield {"type": "text", "text": part.text}
        elif thoughts and (thought := _thought(part)):
            yield thought
    for call in message.tool_calls:
        yield {"type": "tool_use", "id": _safe(call.id), "name": call.name, "input": _input(call)}


def _thought(part: Part) -> Mapping[str, Any] | None:
    match part:
        case Reasoning(text=text, native=True, signature=str(signature)) if not signature.startswith(_OTHERS_SECRET):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case HiddenReasoning(data=str(data)) if not data.startswith(_OTHERS_SECRET):
            return {"type": "redacted_thinking", "data": data}
        case _:
            return None


def _given(part: Part) -> Iterator[Mapping[str, Any]]:
    if isinstance(part, Text) and part.text.strip():
        yield {"type": "text", "text": part.text}
    elif isinstance(part, Image):
        yield _image(part.source)


def _image(source: Mapping[str, Any]) -> Mapping[str, Any]:
    url, data = source.get("url"), source.get("data")
    kind = source.get("media_type") or "image/png"
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.partition(";base64,")
        kind, url = head.removeprefix("data:") or kind, None
    if url:
        return {"type": "image", "source": {"type": "url", "url": url}}
    if data:
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    # An error here would repeat with every turn to come, since the row stays in the history.
    return {"type": "text", "text": LOST}


def _input(call: ToolCall) -> object:
    """The arguments as an object, which the protocol requires; anything else is wrapped as text under a name of its
    own."""
    try:
        given = orjson.loads(call.arguments or "{}")
    except orjson.JSONDecodeError:
        return {"arguments": call.arguments}
    return given if isinstance(given, dict) else {"arguments": call.arguments}


def _safe(call_id: str) -> str:
    """The id in the letters that the protocol allows; other providers use more letters."""
    return _ID.sub("_", call_id) or "_"
