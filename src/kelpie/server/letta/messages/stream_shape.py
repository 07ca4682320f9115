"""The events of a turn as the frames of a stream.

Step mode sends whole messages when they are durable. Token mode sends deltas that share id and `otid` with the message
they belong to, and leaves out messages that were sent as deltas. Tool calls as deltas leave out their null keys, except
for those that wait for approval, and their `tool_calls` is the single delta, as Letta's SDKs have learned to expect.
The frames of a background run are numbered: made again from the same events they are the same, so a reader can go on
after any of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kelpie.agent.events.partial_json import StringField
from kelpie.agent.events.turn_events import (
    AnswerDelta,
    CallDelta,
    Compacting,
    Lagged,
    MessageCommitted,
    StepAbandoned,
    StreamCut,
    ThoughtDelta,
    ToolProgress,
    TurnEnded,
    TurnEvent,
    TurnOpened,
)
from kelpie.core.conversations.messages import Role, Usage
from kelpie.core.errors import KelpieError
from kelpie.core.ids import AgentId, RunId
from kelpie.core.time import Micros
from kelpie.server.http import sse
from kelpie.server.http.errors import error_frame
from kelpie.server.letta.messages.shape import View, envelope, part_otid, wire_messages

LAGGED = "The client read this stream too slowly, so the server closed it"
CUT = "This stream is longer than the server stores"


class StreamFrames:
    """Makes the frames of one turn. Keeps the tool call that a fragment belongs to, and the number of the last frame.

    With `after`, frames are numbered, and those up to it are left out; number 1 is the ping that opens the stream.
    """

    def __init__(self, agent_id: AgentId, run_id: RunId, view: View, after: int | None = None) -> None:
        self._agent_id = agent_id
        self._run_id = run_id
        self._view = view
        self._after = after
        self._number = 1
        self._answers: dict[str, StringField] = {}

    def of(self, event: TurnEvent) -> Iterator[bytes]:
        """The frames of this event; the last event ends with [DONE]."""
        match event:
            case TurnOpened():
                return
            case MessageCommitted():
                for message in () if event.previewed else commit_messages(event, self._view):
                    yield from self._frame(message)
            case AnswerDelta():
                yield from self._answer(event, event.text)
            case ThoughtDelta(hidden=True):
                state = "redacted" if event.text else "omitted"
                fields = {"state": state, "hidden_reasoning": event.text or None}
                yield from self._delta("hidden_reasoning_message", event, fields)
            case ThoughtDelta():
                source = "reasoner_model" if event.native else "non_reasoner_model"
                fields = {"source": source, "reasoning": event.text, "signature": None}
                yield from self._delta("reasoning_message", event, fields)
            case CallDelta():
                yield from self._call(event)
            case Compacting():
                for message in compaction_messages(event, self._view):
                    yield from self._frame(message)
            case StepAbandoned():
                yield from self._frame(_abandoned(event, self._run_id))
            case ToolProgress():
                yield from self._frame(progress_shape(event))
            case TurnEnded():
                yield from self._ending(event)
            case Lagged():
                yield from self._incomplete(LAGGED)
            case StreamCut():
                yield from self._incomplete(CUT)

    def opening(self, at: Micros) -> bytes:
        """The ping that opens a numbered stream, the same whenever the stream is read; nothing when the reader is past
        it.
        """
        if self._after:
            return b""
        return self.ping(self._run_id.uuid, at)

    def broken(self, error: KelpieError) -> Iterator[bytes]:
        """The end of a stream that cannot be read further; these frames have no number, because the next reader gets
        others in their place.
        """
        yield sse.frame(stop_shape("error"))
        yield sse.error(error_frame(error, self._run_id))
        yield sse.DONE

    def ping(self, ping_uuid: str, at: Micros) -> bytes:
        """Shows the client that the connection is alive, and in a numbered stream the frame to go on after."""
        head = envelope("ping", f"ping-{ping_uuid}", at=at, otid=None, run_id=self._run_id)
        return sse.frame(head if self._after is None else head | {"seq_id": max(self._number, self._after)})

    def _frame(self, data: dict[str, Any], *, error: bool = False) -> Iterator[bytes]:
        self._number += 1
        if self._after is not None:
            if self._number <= self._after:
                return
            if "seq_id" in data:
                data = data | {"seq_id": self._number}
        yield sse.error(data) if error else sse.frame(data)

    def _ending(self, event: TurnEnded) -> Iterator[bytes]:
        yield from self._frame(stop_shape(event.stop_reason, event.detail, event.budget))
        if event.error:
            yield from self._frame(error_frame(event.error, event.run_id), error=True)
        else:
            yield from self._frame(usage_shape(event.usage, event.step_count, event.context_tokens, event.run_ids))
        yield sse.DONE

    def _incomplete(self, why: str) -> Iterator[bytes]:
        text = f"{why}. The turn continues as {self._run_id}; list the messages of that run."
        shape = {"message_type": "error_message", "run_id": self._run_id, "error_type": "stream_incomplete"}
        yield from self._frame(stop_shape("error"))
        yield from self._frame(shape | {"message": text, "detail": text, "seq_id": None}, error=True)
        yield sse.DONE

    def _call(self, event: CallDelta) -> Iterator[bytes]:
        if event.name is not None and self._view.answers_with(event.name) and not event.awaits:
            self._answers[event.call_id] = StringField(self._view.tool_kwarg)
        if event.call_id in self._answers:
            text = self._answers[event.call_id].feed(event.arguments or "")
            if text:
                yield from self._answer(event, text)
            return
        pieces = {"name": event.name, "arguments": event.arguments, "tool_call_id": event.call_id}
        if event.awaits:
            fields = {"tool_call": pieces, "tool_calls": pieces, "otid": event.message_id}
            yield from self._delta("approval_request_message", event, fields)
            return
        call = {key: value for key, value in pieces.items() if value is not None}
        yield from self._delta("tool_call_message", event, {"tool_call": call, "tool_calls": call})

    def _answer(self, event: AnswerDelta | CallDelta, text: str) -> Iterator[bytes]:
        return self._delta("assistant_message", event, {"assistant_id": self._agent_id, "content": text})

    def _delta(
        self, message_type: str, event: AnswerDelta | ThoughtDelta | CallDelta, fields: dict[str, Any]
    ) -> Iterator[bytes]:
        if not self._view.shows(message_type):
            return
        head = envelope(
            message_type,
            event.message_id,
            at=event.at,
            otid=part_otid(event.message_id, event.part),
            step_id=event.step_id,
            run_id=self._run_id,
        )
        yield from self._frame(head | fields)


def commit_messages(event: MessageCommitted, view: View) -> list[dict[str, Any]]:
    """The wire messages of a commit, without the input: a client knows that by its own `otid`."""
    row = event.message
    put_in = row.otid is not None and row.role is not Role.summary
    return [] if put_in else wire_messages(row, view)


def compaction_messages(event: Compacting, view: View) -> list[dict[str, Any]]:
    """The wire message of a compaction, for clients that asked for such messages."""
    if not view.compaction or not view.shows("event_message"):
        return []
    head = envelope("event_message", event.event_id, at=event.at, otid=None, step_id=event.step_id, run_id=event.run_id)
    data = {"trigger": event.trigger, "context_token_estimate": event.tokens, "context_window": event.window}
    return [head | {"event_type": "compaction", "event_data": data}]


def stop_shape(reason: str, detail: str | None = None, budget: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The stop reason of a turn; where Letta has no word for it, Kelpie's stands beside the nearest of Letta's."""
    shape: dict[str, Any] = {"message_type": "stop_reason", "stop_reason": reason}
    if detail is not None:
        shape["kelpie_stop_reason"] = detail
    if budget is not None:
        shape["kelpie_budget"] = dict(budget)
    return shape


def usage_shape(
    usage: Usage, step_count: int, context_tokens: int | None, run_ids: tuple[RunId, ...] = ()
) -> dict[str, Any]:
    return {
        "message_type": "usage_statistics",
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.total_tokens,
        "step_count": step_count,
        "run_ids": list(run_ids) or None,
        "cached_input_tokens": usage.cached_input_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "context_tokens": context_tokens,
        # Kelpie's own: dollars, null when the price of a model is not known.
        "kelpie_cost_usd": usage.cost_usd,
    }


def _abandoned(event: StepAbandoned, run_id: RunId) -> dict[str, Any]:
    """A ping to clients that know no better; `kelpie_abandoned` names the message whose deltas count for nothing."""
    head = envelope(
        "ping", f"ping-{event.message_id.uuid}", at=event.at, otid=None, step_id=event.step_id, run_id=run_id
    )
    return head | {"kelpie_abandoned": event.message_id}


def progress_shape(event: ToolProgress) -> dict[str, Any]:
    """The progress of a tool call: a ping for Letta's clients, with Kelpie's own field."""
    head = envelope(
        "ping", f"ping-{event.run_id.uuid}", at=event.at, otid=None, step_id=event.step_id, run_id=event.run_id
    )
    told = {"tool_call_id": event.call_id, "name": event.name, "progress": event.done}
    return head | {"kelpie_progress": told | {"total": event.total, "message": event.message}}
