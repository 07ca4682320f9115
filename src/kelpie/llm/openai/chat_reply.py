"""Parser of replies in OpenAI's chat completions format: whole, or assembled from the pieces of a stream.

Both ways share one path: a whole message is read as a single large piece. Compatible servers differ in small ways (no
ids, no indexes, reasoning under two names, usage in several places), and this module handles all of them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from kelpie.core.conversations.messages import HiddenReasoning, Part, Reasoning, Text, ToolCall, Usage
from kelpie.llm.provider.interface import ReasoningDelta, Reply, TextDelta, ToolCallDelta
from kelpie.llm.wire.exchange import Delta, Unreadable

_FINISHES = {
    "function_call": "tool_calls",
    "max_tokens": "length",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
}


class _Call:
    __slots__ = ("arguments", "given_id", "id", "index", "name", "told", "wire_index")

    def __init__(self, index: int, wire_index: int | None, given_id: str | None, chosen_id: str) -> None:
        self.index = index
        self.wire_index = wire_index
        self.given_id = given_id
        self.id = chosen_id
        self.name = ""
        self.arguments: list[str] = []
        self.told = False  # once it has a name


class Assembly:
    """The reply as far as it has been read. `made_id` gives an id to the n-th call when the server gave none.

    `reasons` is true for a model that always thinks: thoughts that the server keeps to itself are marked as hidden.
    """

    def __init__(self, made_id: Callable[[int], str], *, reasons: bool = False) -> None:
        self._made_id = made_id
        self._keeps_thoughts = reasons  # true until a thought came
        self._hidden = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._finish: str | None = None
        self._usage = Usage()

    @property
    def finished(self) -> bool:
        """True if the model has reported its end; only the usage may still be missing."""
        return self._finish is not None

    @property
    def done(self) -> bool:
        """Never true: the usage may follow, and the stream has an end mark."""
        return False

    def whole(self, data: Mapping[str, Any]) -> Iterator[Delta]:
        """Reads a whole completion. Raises Unreadable."""
        return self._read(data, "message")

    def event(self, data: Mapping[str, Any]) -> Iterator[Delta]:
        """Reads a chunk of a stream. Raises Unreadable."""
        return self._read(data, "delta")

    def _read(self, data: Mapping[str, Any], field: str) -> Iterator[Delta]:
        if isinstance(usage := data.get("usage"), dict):
            self._usage = read_usage(usage)
        choices = data.get("choices")
        if not isinstance(choices, list) or (field == "message" and not choices):
            if field == "delta" and choices is None:
                return  # a chunk of a kind we do not know
            raise Unreadable("it has no choices")
        for choice in choices:
            if not isinstance(choice, dict):
                raise Unreadable("a choice is not an object")
            if choice.get("index", 0) in (0, None):
                yield from self._choice(choice, field)

    def reply(self) -> Reply:
        """The whole reply. Raises Unreadable when it is empty."""
        content: list[Part] = []
        if self._hidden:
            content.append(HiddenReasoning())
        if self._reasoning:
            content.append(Reasoning("".join(self._reasoning)))
        if self._text:
            content.append(Text("".join(self._text)))
        calls = tuple(ToolCall(call.id, call.name, "".join(call.arguments)) for call in self._calls)
        if any(not call.name for call in calls):
            raise Unreadable("a tool call has no name")
        finish = self._finish or "stop"
        if not content and not calls and finish in ("stop", "tool_calls"):
            raise Unreadable("it is empty")
        if calls and finish == "stop":
            finish = "tool_calls"
        return Reply(tuple(content), calls, finish, self._usage)

    def _choice(self, choice: Mapping[str, Any], field: str) -> Iterator[Delta]:
        piece = choice.get(field) or {}
        if not isinstance(piece, dict):
            raise Unreadable(f"the {field} is not an object")
        if thought := _text(piece.get("reasoning_content")) or _text(piece.get("reasoning")):
            self._keeps_thoughts = False
            self._reasoning.append(thought)
            yield ReasoningDelta(thought)
        texts = [text for text in (_text(piece.get("content")), _text(piece.get("refusal"))) if text]
        if self._keeps_thoughts and (texts or piece.get("tool_calls")):
            self._keeps_thoughts, self._hidden = False, True
            yield ReasoningDelta("", hidden=True)
        for text in texts:
            self._text.append(text)
            yield TextDelta(text)
        for call in piece.get("tool_calls") or ():
            yield from self._call(call)
        if finish := choice.get("finish_reason"):
            if finish == "error":
                raise Unreadable("the model stopped with an error")
            self._finish = _FINISHES.get(str(finish), str(finish))

    def _call(self, piece: object) -> Iterator[Delta]:
        function = piece.get("function") if isinstance(piece, dict) else None
        if not isinstance(piece, dict) or not isinstance(function, dict):
            raise Unreadable("a tool call is not a function call")
        call = self._slot(piece.get("index"), piece.get("id") or None, bool(function.get("name")))
        call.name = call.name or str(function.get("name") or "")
        arguments = _arguments(function.get("arguments"))
        if arguments:
            call.arguments.append(arguments)
        if call.told and arguments:
            yield ToolCallDelta(call.index, arguments=arguments)
        elif call.name and not call.told:
            call.told = True
            yield ToolCallDelta(call.index, call.id, call.name, "".join(call.arguments))

    def _slot(self, wire_index: int | None, given_id: str | None, named: bool) -> _Call:
        """The call that a piece belongs to. Some servers number every call 0 or not at all: then a new id is a new
        call."""
        for call in reversed(self._calls):
            another = named and given_id is not None and call.given_id not in (None, given_id)
            same_place = call.wire_index == wire_index if wire_index is not None else not (named and call.name)
            if same_place and not another:
                call.given_id = call.given_id or given_id
                return call
        index = len(self._calls)
        taken = any(call.id == given_id for call in self._calls)
        call = _Call(index, wire_index, given_id, given_id if given_id and not taken else self._made_id(index))
        self._calls.append(call)
        return call


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Tokens as counted by the server; missing counts stay None."""
    prompt, completion = _count(usage.get("prompt_tokens")) or 0, _count(usage.get("completion_tokens")) or 0
    total = _count(usage.get("total_tokens"))
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
    return Usage(
        prompt,
        completion,
        prompt + completion if total is None else total,
        cached_input_tokens=_count(usage.get("prompt_cache_hit_tokens")) if cached is None else cached,
        reasoning_tokens=_detail(usage, "completion_tokens_details", "reasoning_tokens"),
    )


def _detail(usage: Mapping[str, Any], group: str, name: str) -> int | None:
    details = usage.get(group)
    return _count(details.get(name)) if isinstance(details, dict) else None


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _text(content: object) -> str:
    """Text from a string or from a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return ""


def _arguments(given: object) -> str:
    if given is None:
        return ""
    return given if isinstance(given, str) else orjson.dumps(given).decode()
