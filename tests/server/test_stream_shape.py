"""Events of a turn as frames."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from letta_client.types.agents import letta_streaming_response as sdk

from kelpie.agent.events.turn_events import (
    AnswerDelta,
    CallDelta,
    Compacting,
    Lagged,
    MessageCommitted,
    ThoughtDelta,
    TurnEnded,
    TurnEvent,
    TurnOpened,
)
from kelpie.core.conversations.messages import Role, ToolCall, Usage
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import ModelError, ModelFault
from kelpie.server.letta.messages.shape import View, part_otid
from kelpie.server.letta.messages.stream_shape import StreamFrames
from tests.server.rig import AGENT, AT, MESSAGE, RUN, STEP, check_message, row

END = TurnEnded(RUN, StopReason.end_turn, Usage(10, 2, 12), 1, 12)


def frames(*events: TurnEvent, view: View | None = None) -> list[tuple[str | None, Any]]:
    """The frames as a client parses them: the event's name, and its data."""
    shaper = StreamFrames(AGENT, RUN, view or View())
    return list(_parsed(data for event in events for data in shaper.of(event)))


def _parsed(chunks: Iterable[bytes]) -> Iterable[tuple[str | None, Any]]:
    for chunk in chunks:
        assert chunk.endswith(b"\n\n")
        fields = dict(line.split(": ", 1) for line in chunk.decode().strip().split("\n"))
        data = fields["data"]
        yield fields.get("event"), data if data == "[DONE]" else json.loads(data)


def test_step_mode_sends_whole_messages_then_stop_usage_done() -> None:
    found = frames(TurnOpened(RUN, AT), MessageCommitted(row(Role.assistant, "Hello")), END)
    assert [name for name, _ in found] == [None] * 4
    check_message(found[0][1])
    assert found[0][1]["content"] == "Hello"
    assert found[1][1] == {"message_type": "stop_reason", "stop_reason": "end_turn"}
    sdk.LettaUsageStatistics.model_validate(found[2][1])
    assert found[2][1]["total_tokens"] == 12 and found[2][1]["step_count"] == 1 and found[2][1]["context_tokens"] == 12
    assert found[3][1] == "[DONE]"


def test_what_was_put_in_is_not_sent_back() -> None:
    assert frames(MessageCommitted(row(Role.user, "hi", otid="mine"))) == []
    assert frames(MessageCommitted(row(Role.assistant, "put in my mouth", otid="mine"))) == []


def test_deltas_share_id_and_otid_with_the_message_they_preview() -> None:
    found = frames(
        ThoughtDelta(MESSAGE, STEP, AT, 0, "Hm", native=True),
        AnswerDelta(MESSAGE, STEP, AT, 1, "Hel"),
        AnswerDelta(MESSAGE, STEP, AT, 1, "lo"),
        MessageCommitted(row(Role.assistant, "Hello"), previewed=True),
        END,
    )
    shown = [data for _, data in found[:3]]
    assert [m["message_type"] for m in shown] == ["reasoning_message", "assistant_message", "assistant_message"]
    assert {m["id"] for m in shown} == {MESSAGE}
    assert [m["otid"] for m in shown] == [part_otid(MESSAGE, place) for place in (0, 1, 1)]
    assert "".join(m["content"] for m in shown[1:]) == "Hello"
    assert shown[0]["source"] == "reasoner_model" and shown[0]["signature"] is None
    assert all(m["run_id"] == RUN and "seq_id" in m for m in shown)
    assert found[3][1]["message_type"] == "stop_reason"  # the committed message was not sent a second time


@pytest.mark.parametrize(("text", "state", "shown"), [("", "omitted", None), ("b3BhcXVl", "redacted", "b3BhcXVl")])
def test_a_hidden_thought_is_redacted_with_its_opaque_form_and_omitted_without(
    text: str, state: str, shown: str | None
) -> None:
    [(_, found)] = frames(ThoughtDelta(MESSAGE, STEP, AT, 0, text, native=True, hidden=True))
    check_message(found)
    assert (found["message_type"], found["state"]) == ("hidden_reasoning_message", state)
    assert found["hidden_reasoning"] == shown


def test_a_tool_call_as_deltas_leaves_out_null_keys_and_is_its_own_tool_calls() -> None:
    found = [
        data
        for _, data in frames(
            CallDelta(MESSAGE, STEP, AT, 0, "call_1", name="square"),
            CallDelta(MESSAGE, STEP, AT, 0, "call_1", arguments='{"x": 3}'),
        )
    ]
    assert found[0]["tool_call"] == {"name": "square", "tool_call_id": "call_1"}
    assert found[1]["tool_call"] == {"arguments": '{"x": 3}', "tool_call_id": "call_1"}
    assert [m["tool_calls"] for m in found] == [m["tool_call"] for m in found]
    for message in found:
        check_message(message)


def test_a_call_of_the_answering_tool_streams_as_text() -> None:
    pieces = ['{"mess', 'age": "Say \\"', "hi\\u00e", '9\\"', '."}']
    events = [CallDelta(MESSAGE, STEP, AT, 0, "call_1", arguments=piece) for piece in pieces]
    found = frames(CallDelta(MESSAGE, STEP, AT, 0, "call_1", name="send_message"), *events)
    assert {data["message_type"] for _, data in found} == {"assistant_message"}
    assert "".join(data["content"] for _, data in found) == 'Say "hié".'


def test_without_use_assistant_message_the_answering_tool_streams_as_a_call() -> None:
    view = View(use_assistant_message=False)
    found = frames(CallDelta(MESSAGE, STEP, AT, 0, "call_1", name="send_message"), view=view)
    assert found[0][1]["message_type"] == "tool_call_message"


def test_only_wanted_types_are_streamed() -> None:
    view = View(types=frozenset({"tool_call_message"}))
    found = frames(
        AnswerDelta(MESSAGE, STEP, AT, 0, "text"),
        MessageCommitted(row(Role.assistant, "t", tool_calls=(ToolCall("c", "square", "{}"),))),
        view=view,
    )
    assert [data["message_type"] for _, data in found] == ["tool_call_message"]


def test_a_failure_ends_with_its_stop_reason_an_error_event_and_done() -> None:
    error = ModelError(ModelFault.rate_limit, "Too many requests.", detail="slow down", hint="Wait.")
    found = frames(TurnEnded(RUN, StopReason.llm_api_error, Usage(), 0, None, error))
    assert [name for name, _ in found] == [None, "error", None]
    assert found[0][1]["stop_reason"] == "llm_api_error"
    sdk.LettaErrorMessage.model_validate(found[1][1])
    assert found[1][1]["error_type"] == "llm_rate_limit"
    assert (found[1][1]["message"], found[1][1]["detail"]) == ("Too many requests.", "slow down")
    assert found[1][1]["hint"] == "Wait."
    assert found[2][1] == "[DONE]"


def test_a_reader_that_lags_is_told_where_to_read_on() -> None:
    found = frames(Lagged(RUN))
    assert [name for name, _ in found] == [None, "error", None]
    assert found[1][1]["error_type"] == "stream_incomplete"
    assert RUN in found[1][1]["message"]


def test_a_ping_has_the_run_and_the_shape_the_sdk_knows() -> None:
    ((name, data),) = _parsed([StreamFrames(AGENT, RUN, View()).ping("00000000-0000-4000-8000-000000000009", AT)])
    assert name is None and data["run_id"] == RUN
    sdk.LettaPing.model_validate(data)


def test_a_compaction_is_told_to_those_who_asked_and_its_summary_to_everybody() -> None:
    began = Compacting(RUN, "5c436ab2-922f-4fba-9f61-329934f1c001", AT, STEP, "post_step_context_check", 950, 1000)
    summary = MessageCommitted(row(Role.summary, "what was", otid="its own"))
    told = frames(began, summary, view=View(compaction=True))
    assert [data["message_type"] for _, data in told] == ["event_message", "summary_message"]
    for _, data in told:
        check_message(data)
    assert told[0][1]["event_data"] == {
        "trigger": "post_step_context_check", "context_token_estimate": 950, "context_window": 1000,
    }  # fmt: skip
    assert [data["message_type"] for _, data in frames(began, summary)] == ["user_message"]
