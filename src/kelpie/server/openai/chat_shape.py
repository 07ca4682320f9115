"""Chat completions in OpenAI's shape: whole, and as the chunks of a stream."""

from collections.abc import Iterator
from typing import Any

from kelpie.agent.events.partial_json import StringField
from kelpie.agent.events.turn_events import (
    AnswerDelta,
    CallDelta,
    Lagged,
    MessageCommitted,
    StreamCut,
    ThoughtDelta,
    TurnEnded,
    TurnEvent,
)
from kelpie.core.conversations.client_histories import PARAGRAPH, ClientAnswer, answer_of, replies_of
from kelpie.core.conversations.messages import Message, Reasoning, ToolCall, Usage
from kelpie.core.conversations.runs import StopReason
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.server.http import sse
from kelpie.server.openai.error_shape import error_object, facts_of
from kelpie.server.openai.turns import WholeAnswer

ANSWERING, ANSWER_FIELD = "send_message", "message"  # the tool with which some types of agents answer
_LENGTH = frozenset({StopReason.max_steps, StopReason.max_tokens_exceeded})
LAGGED = "The client read this stream too slowly, so the server closed it; the turn goes on."


def finish_reason(stop: StopReason, answer: ClientAnswer) -> str:
    if answer.calls:
        return "tool_calls"
    return "length" if stop in _LENGTH else "stop"


def usage_shape(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens or 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens or 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def call_shape(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def completion(head: dict[str, Any], told: WholeAnswer) -> dict[str, Any]:
    """A whole chat completion."""
    answer = told.answer
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.shown if answer.shown or not answer.calls else None,
        "refusal": None,
        "annotations": [],
    }
    if answer.calls:
        message["tool_calls"] = [call_shape(call) for call in answer.calls]
    if thoughts := _thoughts(told.rows):
        message["reasoning_content"] = thoughts
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": finish_reason(told.stop_reason, answer),
    }
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage_shape(told.usage)}


def _thoughts(rows: tuple[Message, ...]) -> str:
    found = (part.text for row in replies_of(rows) for part in row.content if isinstance(part, Reasoning))
    return PARAGRAPH.join(found)


def head_of(turn_id: str, model: str, at: Micros) -> dict[str, Any]:
    """The fields that a completion and each of its chunks share."""
    return {
        "id": f"chatcmpl-{turn_id}",
        "created": at // MICROS_PER_SECOND,
        "model": model,
        "system_fingerprint": None,
        "service_tier": "default",
    }


class ChatChunks:
    """Makes the chunks of one turn. Deltas of calls are kept until they are complete: only those of the client's own
    tools are shown, and which they are is known when the reply is stored."""

    def __init__(self, head: dict[str, Any], *, with_usage: bool) -> None:
        self._head = {**head, "object": "chat.completion.chunk"}
        self._with_usage = with_usage
        self._begun = False
        self._message: str | None = None  # whose text was sent last
        self._previewed: set[str] = set()  # messages whose text was sent as deltas
        self._answers: dict[str, StringField] = {}
        self._rows: list[Message] = []

    def of(self, event: TurnEvent) -> Iterator[bytes]:
        """The frames of an event; the last event ends with [DONE]."""
        match event:
            case AnswerDelta():
                yield from self._text(event.message_id, event.text)
            case CallDelta():
                yield from self._answering(event)
            case ThoughtDelta(hidden=False):
                yield from self._delta({"reasoning_content": event.text})
            case MessageCommitted():
                yield from self._committed(event.message)
            case TurnEnded():
                yield from self._ending(event)
            case Lagged() | StreamCut():
                yield sse.frame({"error": error_object(LAGGED, "server_error", "stream_incomplete")})
                yield sse.DONE
            case _:
                return

    def _answering(self, event: CallDelta) -> Iterator[bytes]:
        """The text of a call of the answering tool."""
        if event.name == ANSWERING and not event.awaits:
            self._answers[event.call_id] = StringField(ANSWER_FIELD)
        if event.call_id in self._answers:
            text = self._answers[event.call_id].feed(event.arguments or "")
            if text:
                yield from self._text(event.message_id, text)

    def _committed(self, row: Message) -> Iterator[bytes]:
        self._rows.append(row)
        if replies_of((row,)) and row.id not in self._previewed and row.said:
            yield from self._text(row.id, row.said)

    def _text(self, message_id: str, text: str) -> Iterator[bytes]:
        if message_id not in self._previewed and self._message is not None:
            text = PARAGRAPH + text
        self._previewed.add(message_id)
        self._message = message_id
        yield from self._delta({"content": text})

    def _delta(self, delta: dict[str, Any], finish: str | None = None) -> Iterator[bytes]:
        if not self._begun:
            self._begun = True
            yield from self._delta({"role": "assistant", "content": "", "refusal": None})
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        yield self._frame([choice], None)

    def _frame(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> bytes:
        return sse.frame({**self._head, "choices": choices, **({"usage": usage} if self._with_usage else {})})

    def _ending(self, event: TurnEnded) -> Iterator[bytes]:
        if event.error is not None:
            yield sse.frame({"error": error_object(*facts_of(event.error))})
            yield sse.DONE
            return
        answer = answer_of(self._rows)
        if answer.note:
            yield from self._text("", answer.note)
        for at, call in enumerate(answer.calls):
            yield from self._delta({"tool_calls": [{"index": at, **call_shape(call)}]})
        yield from self._delta({}, finish_reason(event.stop_reason, answer))
        if self._with_usage:
            yield self._frame([], usage_shape(event.usage))
        yield sse.DONE
