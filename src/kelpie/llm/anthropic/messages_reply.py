"""Parser of replies in Anthropic's messages format: whole, or assembled from the events of a stream.

Both ways share one path: a whole message is read as blocks that begin and end at once. Thoughts keep their signatures,
since the provider requires both again; unknown kinds of blocks and events are skipped.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kelpie.core.conversations.messages import Usage
from kelpie.llm.provider.interface import Reply
from kelpie.llm.wire.exchange import Delta, Unreadable
from kelpie.llm.wire.reply_blocks import Blocks, count, number

_FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class Assembly:
    """The reply as far as it has been read. `made_id` gives an id to the n-th call when the server gave none."""

    def __init__(self, made_id: Callable[[int], str]) -> None:
        self._blocks = Blocks(made_id)
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}
        self.done = False

    @property
    def finished(self) -> bool:
        return self._finish is not None

    def whole(self, data: Mapping[str, Any]) -> Iterator[Delta]:
        """Reads a message that came in one piece. Raises Unreadable."""
        content = data.get("content")
        if not isinstance(content, list):
            raise Unreadable("it has no content")
        self._count(data.get("usage"))
        for index, block in enumerate(content):
            yield from self._begin(index, block)
            yield from self._end(index)
        self._stop(data.get("stop_reason") or "end_turn")

    def event(self, data: Mapping[str, Any]) -> Iterator[Delta]:
        """Reads one event of a stream. Raises Unreadable."""
        match data.get("type"):
            case "content_block_delta":
                yield from self._grow(number(data, "index"), _object(data, "delta"))
            case "message_start":
                self._count(_object(data, "message").get("usage"))
            case "content_block_start":
                yield from self._begin(number(data, "index"), data.get("content_block"))
            case "content_block_stop":
                yield from self._end(number(data, "index"))
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
        """The whole reply; the model may give an empty one when it has nothing to add. Raises Unreadable."""
        content, calls = self._blocks.parts()
        finish = self._finish or "stop"
        if calls and finish == "stop":
            finish = "tool_calls"
        return Reply(content, calls, finish, read_usage(self._usage))

    def _begin(self, index: int, given: object) -> Iterator[Delta]:
        if not isinstance(given, dict):
            raise Unreadable("a content block is not an object")
        match given.get("type"):
            case "text":
                yield from self._blocks.grow(self._blocks.begin(index, "text"), given.get("text"))
            case "thinking":
                block = self._blocks.begin(index, "thought")
                block.secret = _text(given.get("signature"))
                yield from self._blocks.grow(block, given.get("thinking"))
            case "redacted_thinking":
                yield from self._blocks.hide(self._blocks.begin(index, "hidden"), _text(given.get("data")))
            case "tool_use":
                yield from self._blocks.begin_call(index, given.get("name"), given.get("id"))
                self._blocks.at(index).given = _arguments(given.get("input"))
            case _:
                self._blocks.begin(index, "other")

    def _grow(self, index: int, delta: Mapping[str, Any]) -> Iterator[Delta]:
        block = self._blocks.at(index)
        match delta.get("type"):
            case "text_delta":
                yield from self._blocks.grow(block, delta.get("text"))
            case "thinking_delta":
                yield from self._blocks.grow(block, delta.get("thinking"))
            case "signature_delta":
                block.secret += _text(delta.get("signature"))
            case "input_json_delta":
                yield from self._blocks.grow(block, delta.get("partial_json"))
            case _:
                return

    def _end(self, index: int) -> Iterator[Delta]:
        """Ends a block. A call without pieces of arguments had them from the start, or takes none."""
        block = self._blocks.get(index)
        if block is not None and not block.pieces:
            yield from self._blocks.grow(block, block.given)

    def _count(self, usage: object) -> None:
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _stop(self, reason: object) -> None:
        if reason:
            self._finish = _FINISHES.get(str(reason), str(reason))


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Tokens as counted by the server. Its count of the input excludes tokens read from or written to the cache."""
    fresh, output = count(usage.get("input_tokens")) or 0, count(usage.get("output_tokens")) or 0
    read, written = count(usage.get("cache_read_input_tokens")), count(usage.get("cache_creation_input_tokens"))
    details = usage.get("output_tokens_details")
    prompt = fresh + (read or 0) + (written or 0)
    return Usage(
        prompt,
        output,
        prompt + output,
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count(details.get("thinking_tokens")) if isinstance(details, dict) else None,
    )


def _object(data: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = data.get(field)
    if not isinstance(value, dict):
        raise Unreadable(f"an event has no {field}")
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _arguments(given: object) -> str:
    return json.dumps(given if isinstance(given, dict) else {}, ensure_ascii=False)
