"""A reply read from Anthropic's messages: whole, or put together from the events of a stream.

Both ways are one: a whole message is read as blocks that begin and end at once. Thoughts keep their signatures, since
the provider wants to see both again; kinds of blocks and events that we do not know are passed over.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kelpie.core.messages import HiddenReasoning, Part, Reasoning, Text, ToolCall, Usage
from kelpie.llm.exchange import Delta, Unreadable
from kelpie.llm.port import ReasoningDelta, Reply, TextDelta, ToolCallDelta

_FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class _Block:
    __slots__ = ("call_index", "data", "id", "kind", "name", "pieces", "signature", "start")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.signature = ""
        self.data = ""
        self.id = ""
        self.name = ""
        self.call_index = 0
        self.start: object = None  # the input of a tool call as it stood when the block began

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Assembly:
    """The reply as far as it has been read. `made_id` gives an id to the n-th call when the server gave none."""

    def __init__(self, made_id: Callable[[int], str]) -> None:
        self._made_id = made_id
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}
        self.done = False

    @property
    def finished(self) -> bool:
        return self._finish is not None

    def whole(self, data: Mapping[str, Any]) -> Iterator[Delta]:
        """Takes in a message that came in one piece. Raises Unreadable."""
        content = data.get("content")
        if not isinstance(content, list):
            raise Unreadable("it has no content")
        self._count(data.get("usage"))
        for index, block in enumerate(content):
            yield from self._begin(index, block)
            yield from self._end(index)
        self._stop(data.get("stop_reason") or "end_turn")

    def event(self, data: Mapping[str, Any]) -> Iterator[Delta]:
        """Takes in one event of a stream. Raises Unreadable."""
        match data.get("type"):
            case "message_start":
                self._count(_object(data, "message").get("usage"))
            case "content_block_start":
                yield from self._begin(_index(data), data.get("content_block"))
            case "content_block_delta":
                yield from self._grow(_index(data), _object(data, "delta"))
            case "content_block_stop":
                yield from self._end(_index(data))
            case "message_delta":
                self._count(data.get("usage"))
                self._stop(_object(data, "delta").get("stop_reason"))
            case "message_stop":
                if not self._finish and not self._blocks:
                    raise Unreadable("it is empty")
                self._finish, self.done = self._finish or "stop", True
            case _:
                return

    def reply(self) -> Reply:
        """The whole reply; an empty one is the model's way to say that it has nothing to add. Raises Unreadable."""
        content: list[Part] = []
        calls: list[ToolCall] = []
        for _, block in sorted(self._blocks.items()):
            match block.kind:
                case "text" if block.pieces:
                    content.append(Text(block.text))
                case "thinking" if block.pieces or block.signature:
                    content.append(Reasoning(block.text, signature=block.signature or None))
                case "redacted_thinking":
                    content.append(HiddenReasoning(block.data))
                case "tool_use":
                    calls.append(ToolCall(block.id, block.name, block.text or _arguments(block.start)))
                case _:
                    pass
        finish = self._finish or "stop"
        if calls and finish == "stop":
            finish = "tool_calls"
        return Reply(tuple(content), tuple(calls), finish, read_usage(self._usage))

    def _begin(self, index: int, given: object) -> Iterator[Delta]:
        if not isinstance(given, dict):
            raise Unreadable("a content block is not an object")
        block = self._blocks[index] = _Block(str(given.get("type")))
        match block.kind:
            case "text":
                yield from self._add(block, given.get("text"))
            case "thinking":
                block.signature = _text(given.get("signature"))
                yield from self._add(block, given.get("thinking"))
            case "redacted_thinking":
                block.data = _text(given.get("data"))
            case "tool_use":
                block.name = _text(given.get("name"))
                if not block.name:
                    raise Unreadable("a tool call has no name")
                block.call_index, self._calls = self._calls, self._calls + 1
                block.id = self._id(_text(given.get("id")), block.call_index)
                block.start = given.get("input")
                yield ToolCallDelta(block.call_index, block.id, block.name)
            case _:
                return

    def _grow(self, index: int, delta: Mapping[str, Any]) -> Iterator[Delta]:
        block = self._blocks.get(index)
        if block is None:
            raise Unreadable("a piece came of a block that had not begun")
        match delta.get("type"):
            case "text_delta":
                yield from self._add(block, delta.get("text"))
            case "thinking_delta":
                yield from self._add(block, delta.get("thinking"))
            case "signature_delta":
                block.signature += _text(delta.get("signature"))
            case "input_json_delta":
                yield from self._add(block, delta.get("partial_json"))
            case _:
                return

    def _add(self, block: _Block, piece: object) -> Iterator[Delta]:
        text = _text(piece)
        if not text:
            return
        block.pieces.append(text)
        match block.kind:
            case "text":
                yield TextDelta(text)
            case "thinking":
                yield ReasoningDelta(text)
            case "tool_use":
                yield ToolCallDelta(block.call_index, arguments=text)
            case _:
                return

    def _end(self, index: int) -> Iterator[Delta]:
        """A call without pieces of arguments had them from the start, or takes none."""
        block = self._blocks.get(index)
        if block is not None and block.kind == "tool_use" and not block.pieces:
            yield from self._add(block, _arguments(block.start))

    def _id(self, given: str, index: int) -> str:
        taken = any(block.id == given for block in self._blocks.values())
        return given if given and not taken else self._made_id(index)

    def _count(self, usage: object) -> None:
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _stop(self, reason: object) -> None:
        if reason:
            self._finish = _FINISHES.get(str(reason), str(reason))


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Tokens as counted by the server. Its count of the input leaves out what came from the cache or went into it."""
    fresh, output = _number(usage.get("input_tokens")) or 0, _number(usage.get("output_tokens")) or 0
    read, written = _number(usage.get("cache_read_input_tokens")), _number(usage.get("cache_creation_input_tokens"))
    details = usage.get("output_tokens_details")
    prompt = fresh + (read or 0) + (written or 0)
    return Usage(
        prompt,
        output,
        prompt + output,
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_number(details.get("thinking_tokens")) if isinstance(details, dict) else None,
    )


def _object(data: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = data.get(field)
    if not isinstance(value, dict):
        raise Unreadable(f"an event has no {field}")
    return value


def _index(data: Mapping[str, Any]) -> int:
    index = data.get("index")
    if not isinstance(index, int):
        raise Unreadable("an event does not tell its block")
    return index


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _arguments(given: object) -> str:
    return json.dumps(given if isinstance(given, dict) else {}, ensure_ascii=False)
