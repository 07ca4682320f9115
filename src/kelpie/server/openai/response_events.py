"""The events of a turn as the stream of a response. Made again from the same events they have the same numbers, so a
reader of a response in the background can go on after any of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kelpie.agent.events.partial_json import StringField
from kelpie.agent.events.turn_events import (
    AnswerDelta,
    CallDelta,
    Lagged,
    MessageCommitted,
    StepAbandoned,
    StreamCut,
    ThoughtDelta,
    TurnEnded,
    TurnEvent,
)
from kelpie.core.conversations.client_histories import answer_of, replies_of
from kelpie.core.conversations.messages import Message, Reasoning, ToolCall
from kelpie.core.conversations.runs import StopReason
from kelpie.server.openai import item_shape
from kelpie.server.openai.chat_shape import ANSWER_FIELD, ANSWERING, LAGGED
from kelpie.server.openai.error_shape import facts_of
from kelpie.server.openai.response_shape import ended

Shape = Callable[..., dict[str, Any]]
"""Makes the response as it is now, from its status and what is known of it."""


@dataclass(slots=True)
class _OpenItem:
    """An item whose text is being sent."""

    kind: str  # message or reasoning
    message_id: str
    place: int
    text: str = ""

    @property
    def id(self) -> str:
        return item_shape.item_id("msg" if self.kind == "message" else "rs", self.message_id)

    def shape(self, text: str | None, status: str) -> dict[str, Any]:
        made = item_shape.message_item if self.kind == "message" else item_shape.reasoning_item
        return made(self.message_id, text, status)


class ResponseEvents:
    """Makes the events of one response. With `after`, those up to that number are left out."""

    def __init__(self, shape: Shape, *, queued: bool = False, after: int = -1) -> None:
        self._shape = shape
        self._queued = queued
        self._after = after
        self._number = -1
        self._items = 0
        self._open: _OpenItem | None = None
        self._told: set[tuple[str, str]] = set()  # kinds of items of messages that were sent as deltas
        self._answers: dict[str, StringField] = {}
        self._rows: list[Message] = []

    def opening(self) -> Iterator[bytes]:
        """The events before the first of the turn."""
        first = "queued" if self._queued else "in_progress"
        yield from self._event("response.created", response=self._shape(status=first))
        if self._queued:
            yield from self._event("response.queued", response=self._shape(status="queued"))
        yield from self._event("response.in_progress", response=self._shape(status="in_progress"))

    def of(self, event: TurnEvent) -> Iterator[bytes]:
        """The events of one event of the turn."""
        match event:
            case AnswerDelta():
                yield from self._text("message", event.message_id, event.text)
            case ThoughtDelta(hidden=False):
                yield from self._text("reasoning", event.message_id, event.text)
            case CallDelta():
                yield from self._answering(event)
            case MessageCommitted():
                yield from self._committed(event.message)
            case StepAbandoned():
                yield from self._close("incomplete")
            case TurnEnded():
                yield from self._ending(event)
            case Lagged() | StreamCut():
                yield from self._event("error", code="stream_incomplete", message=LAGGED, param=None)
            case _:
                return

    def broken(self, message: str, code: str) -> Iterator[bytes]:
        """The end of a stream that cannot be read further."""
        yield from self._event("error", code=code, message=message, param=None)

    def _answering(self, event: CallDelta) -> Iterator[bytes]:
        if event.name == ANSWERING and not event.awaits:
            self._answers[event.call_id] = StringField(ANSWER_FIELD)
        if event.call_id in self._answers and (text := self._answers[event.call_id].feed(event.arguments or "")):
            yield from self._text("message", event.message_id, text)

    def _committed(self, row: Message) -> Iterator[bytes]:
        self._rows.append(row)
        if not replies_of((row,)):
            return
        thoughts = "\n\n".join(part.text for part in row.content if isinstance(part, Reasoning))
        for kind, text in (("reasoning", thoughts), ("message", row.said)):
            if text and (kind, row.id) not in self._told:
                yield from self._text(kind, row.id, text)
        yield from self._close()

    def _text(self, kind: str, message_id: str, delta: str) -> Iterator[bytes]:
        item = self._open
        if item is None or (item.kind, item.message_id) != (kind, message_id):
            yield from self._close()
            self._open = item = _OpenItem(kind, message_id, self._items)
            self._items += 1
            self._told.add((kind, message_id))
            yield from self._item("response.output_item.added", item.place, item.shape(None, "in_progress"))
            if kind == "message":
                yield from self._of("response.content_part.added", item, part=item_shape.text_part(""))
            else:
                yield from self._of("response.reasoning_summary_part.added", item, part=_summary(""))
        item.text += delta
        if kind == "message":
            yield from self._of("response.output_text.delta", item, delta=delta, logprobs=[])
        else:
            yield from self._of("response.reasoning_summary_text.delta", item, delta=delta)

    def _close(self, status: str = "completed") -> Iterator[bytes]:
        item, self._open = self._open, None
        if item is None:
            return
        if item.kind == "message":
            yield from self._of("response.output_text.done", item, text=item.text, logprobs=[])
            yield from self._of("response.content_part.done", item, part=item_shape.text_part(item.text))
        else:
            yield from self._of("response.reasoning_summary_text.done", item, text=item.text)
            yield from self._of("response.reasoning_summary_part.done", item, part=_summary(item.text))
        yield from self._item("response.output_item.done", item.place, item.shape(item.text, status))

    def _ending(self, event: TurnEnded) -> Iterator[bytes]:
        yield from self._close("completed" if event.error is None else "incomplete")
        rows = tuple(self._rows)
        if event.error is not None:
            message, _, code = facts_of(event.error)
            known = code if code in ("rate_limit_exceeded", "server_error") else "server_error"
            failed = {"code": known, "message": message}
            yield from self._event("response.failed", response=self._shape(status="failed", rows=rows, error=failed))
            return
        yield from self._calls(rows)
        facts: dict[str, Any] = {"rows": rows, "usage": event.usage, "stop": event.stop_reason}
        told = self._shape(**ended(event.stop_reason), **facts)
        kind = "incomplete" if event.stop_reason is StopReason.cancelled else told["status"]
        yield from self._event(f"response.{kind}", response=told)

    def _calls(self, rows: tuple[Message, ...]) -> Iterator[bytes]:
        """The note about an approval, and the calls of the client's tools, which are known only now."""
        replies = replies_of(rows)
        if not replies:
            return
        last = replies[-1]
        if note := answer_of(rows).note:
            yield from self._text("message", item_shape.noted(last.id), note)
            yield from self._close()
        for at, call in enumerate(item_shape.client_calls(last)):
            yield from self._call(last.id, at, call)

    def _call(self, message_id: str, at: int, call: ToolCall) -> Iterator[bytes]:
        done = item_shape.call_item(message_id, at, call)
        place, self._items = self._items, self._items + 1
        where = {"item_id": done["id"], "output_index": place}
        begun = done | {"status": "in_progress", "arguments": ""}
        yield from self._item("response.output_item.added", place, begun)
        yield from self._event("response.function_call_arguments.delta", delta=call.arguments, **where)
        yield from self._event(
            "response.function_call_arguments.done", arguments=call.arguments, name=call.name, **where
        )
        yield from self._item("response.output_item.done", place, done)

    def _of(self, kind: str, item: _OpenItem, **fields: Any) -> Iterator[bytes]:
        index = "content_index" if item.kind == "message" else "summary_index"
        yield from self._event(kind, item_id=item.id, output_index=item.place, **{index: 0}, **fields)

    def _item(self, kind: str, place: int, item: Mapping[str, Any]) -> Iterator[bytes]:
        yield from self._event(kind, output_index=place, item=item)

    def _event(self, kind: str, **fields: Any) -> Iterator[bytes]:
        self._number += 1
        if self._number > self._after:
            data = orjson.dumps({"type": kind, "sequence_number": self._number, **fields})
            yield b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def _summary(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}
