"""Parser of replies in OpenAI's responses format: whole, or assembled from the events of a stream.

Both ways share one path: a whole item is read like a streamed one, and the parts that were not streamed are emitted at
its end. A thought keeps its encrypted form as its signature, or stays hidden when there is no summary of it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kelpie.core.conversations.messages import Usage
from kelpie.llm.provider.interface import Reply
from kelpie.llm.wire.exchange import Complaint, Delta, Unreadable
from kelpie.llm.wire.reply_blocks import Block, Blocks, Kind, count, number

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_KINDS: Mapping[str, Kind] = {"message": "text", "reasoning": "thought"}
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class Assembly:
    """The reply as far as it has been read. `made_id` gives an id to the n-th call when the server gave none."""

    def __init__(self, made_id: Callable[[int], str]) -> None:
        self._items = Blocks(made_id)
        self._finish: str | None = None
        self._usage = Usage()

    @property
    def finished(self) -> bool:
        return self._finish is not None

    @property
    def done(self) -> bool:
        return self.finished  # the last event holds everything

    def whole(self, data: Mapping[str, Any]) -> Iterator[Delta]:
        """Reads a response that came in one piece. Raises Unreadable or Complaint."""
        output = data.get("output")
        if not isinstance(output, list):
            raise Unreadable("it has no output")
        for index, item in enumerate(output):
            yield from self._settle(index, item)
        self._end(data)

    def event(self, data: Mapping[str, Any]) -> Iterator[Delta]:
        """Reads one event of a stream. Raises Unreadable or Complaint."""
        kind = data.get("type")
        if kind in _TEXT or kind == "response.function_call_arguments.delta":
            yield from self._items.grow(self._item(data), data.get("delta"))
        elif kind in _THOUGHTS:
            yield from self._think(self._item(data), data)
        elif kind == "response.output_item.added":
            yield from self._begin(number(data, "output_index"), data.get("item"))
        elif kind == "response.output_item.done":
            yield from self._settle(number(data, "output_index"), data.get("item"))
        elif kind == "error":
            raise Complaint({"error": data})
        elif kind in _ENDS:
            response = data.get("response")
            if not isinstance(response, dict):
                raise Unreadable("the last event has no response")
            for index, item in enumerate(response.get("output") or ()):
                yield from self._settle(index, item)
            self._end(response)

    def reply(self) -> Reply:
        """The whole reply. Raises Unreadable when it is empty."""
        content, calls = self._items.parts()
        finish = self._finish or "stop"
        if not content and not calls and finish == "stop":
            raise Unreadable("it is empty")
        if calls and finish == "stop":
            finish = "tool_calls"
        return Reply(content, calls, finish, self._usage)

    def _begin(self, index: int, given: object) -> Iterator[Delta]:
        if not isinstance(given, dict):
            raise Unreadable("an item is not an object")
        if given.get("type") == "function_call":
            yield from self._items.begin_call(index, given.get("name"), given.get("call_id") or given.get("id"))
        else:
            self._items.begin(index, _KINDS.get(str(given.get("type")), "other"))

    def _settle(self, index: int, given: object) -> Iterator[Delta]:
        """Reads an item at its end; the parts that were not streamed are emitted now."""
        if self._items.get(index) is None:
            yield from self._begin(index, given)
        item = self._items.at(index)
        if item.settled or not isinstance(given, dict):
            return
        item.settled = True
        if not item.pieces:
            yield from self._items.grow(item, _whole_text(given))
        if item.kind == "thought":
            secret = given.get("encrypted_content")
            item.secret = secret if isinstance(secret, str) else ""
            if item.secret and not item.pieces:
                yield from self._items.hide(item, item.secret)

    def _think(self, item: Block, data: Mapping[str, Any]) -> Iterator[Delta]:
        part = data.get("summary_index", data.get("content_index"))
        if item.pieces and part != item.part:
            yield from self._items.grow(item, "\n\n")
        item.part = part
        yield from self._items.grow(item, data.get("delta"))

    def _item(self, data: Mapping[str, Any]) -> Block:
        return self._items.at(number(data, "output_index"))

    def _end(self, response: Mapping[str, Any]) -> None:
        if response.get("error"):
            raise Complaint(response)
        status = response.get("status") or "completed"
        details = response.get("incomplete_details")
        if status == "incomplete":
            reason = details.get("reason") if isinstance(details, dict) else None
            self._finish = "content_filter" if reason == "content_filter" else "length"
        elif status == "completed":
            self._finish = "stop"
        else:
            raise Unreadable(f"its status is {status}")
        if isinstance(usage := response.get("usage"), dict):
            self._usage = read_usage(usage)


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Tokens as counted by the server; missing counts stay None."""
    prompt, output = count(usage.get("input_tokens")) or 0, count(usage.get("output_tokens")) or 0
    total = count(usage.get("total_tokens"))
    taken, given = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    taken, given = taken if isinstance(taken, dict) else {}, given if isinstance(given, dict) else {}
    return Usage(
        prompt,
        output,
        prompt + output if total is None else total,
        cached_input_tokens=count(taken.get("cached_tokens")),
        cache_write_tokens=count(taken.get("cache_write_tokens")),
        reasoning_tokens=count(given.get("reasoning_tokens")),
    )


def _whole_text(item: Mapping[str, Any]) -> str:
    """The text of a whole item: a message, the arguments of a call, or the summary of a thought."""
    match item.get("type"):
        case "function_call":
            arguments = item.get("arguments")
            return arguments if isinstance(arguments, str) else ""
        case "reasoning":
            return "\n\n".join(_texts(item.get("summary")) or _texts(item.get("content")))
        case "message":
            return "".join(_texts(item.get("content")))
        case _:
            return ""


def _texts(parts: object) -> list[str]:
    if not isinstance(parts, list):
        return []
    texts = (part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict))
    return [text for text in texts if isinstance(text, str) and text]
