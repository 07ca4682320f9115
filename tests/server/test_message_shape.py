"""Stored rows as wire messages."""

import json

import pytest

from kelpie.agent.prompt.summary import summary_row
from kelpie.core.agents.compaction_settings import CompactionStats
from kelpie.core.conversations.messages import (
    HiddenReasoning,
    Image,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)
from kelpie.core.conversations.runs import Run, RunStatus
from kelpie.core.ids import MessageId
from kelpie.server.letta.messages.shape import View, part_otid, wire_messages
from tests.server.rig import AGENT, MESSAGE, RUN, STEP, check_message, row

SPEAK = ToolCall("call_1", "send_message", '{"message": "Hi."}')
SQUARE = ToolCall("call_2", "square", '{"x": 3}')


@pytest.mark.parametrize(
    ("uuid_end", "place", "end"),
    [("80", 0, "80"), ("ff", 0, "80"), ("ff", 1, "81"), ("7f", 3, "03"), ("00", 127, "7f")],
)
def test_otid_is_the_row_with_its_low_seven_bits_replaced(uuid_end: str, place: int, end: str) -> None:
    start = "06673e64-5c7a-4a21-aa3c-b8fa8d9132"
    assert part_otid(MessageId(f"message-{start}{uuid_end}"), place) == f"{start}{end}"


def test_every_message_carries_the_common_keys_even_when_null() -> None:
    (message,) = wire_messages(row(Role.assistant, "Hello"))
    assert message == {
        "id": MESSAGE,
        "date": "2023-11-14T22:13:20+00:00",
        "name": None,
        "message_type": "assistant_message",
        "otid": part_otid(MESSAGE, 0),
        "sender_id": None,
        "step_id": STEP,
        "is_err": None,
        "seq_id": None,
        "run_id": RUN,
        "assistant_id": AGENT,
        "content": "Hello",
    }
    check_message(message)


def test_an_assistant_row_becomes_its_parts_then_one_message_with_all_calls() -> None:
    calls = (SQUARE, ToolCall("call_3", "twice", "{}"))
    found = wire_messages(row(Role.assistant, Reasoning("hm", signature="sig"), "Wait.", tool_calls=calls))
    assert [m["message_type"] for m in found] == ["reasoning_message", "assistant_message", "tool_call_message"]
    assert [m["otid"] for m in found] == [part_otid(MESSAGE, place) for place in range(3)]
    assert {m["id"] for m in found} == {MESSAGE}
    assert found[0]["source"] == "reasoner_model" and found[0]["signature"] == "sig"
    assert found[2]["tool_call"] == {"name": "square", "arguments": '{"x": 3}', "tool_call_id": "call_2"}
    assert [c["name"] for c in found[2]["tool_calls"]] == ["square", "twice"]
    for message in found:
        check_message(message)


def test_the_answering_tool_is_shown_as_an_answer_and_its_return_is_not_shown() -> None:
    spoken = row(Role.assistant, Reasoning("I greet.", native=False), tool_calls=(SPEAK,))
    found = wire_messages(spoken)
    assert [(m["message_type"], m.get("content")) for m in found] == [
        ("reasoning_message", None),
        ("assistant_message", "Hi."),
    ]
    assert found[0]["source"] == "non_reasoner_model"
    assert wire_messages(_returned(ToolReturn("call_1", "send_message", True, "Sent."))) == []


def test_without_use_assistant_message_the_call_and_its_return_are_shown() -> None:
    view = View(use_assistant_message=False)
    (call,) = wire_messages(row(Role.assistant, tool_calls=(SPEAK,)), view)
    assert call["message_type"] == "tool_call_message"
    assert len(wire_messages(_returned(ToolReturn("call_1", "send_message", True, "Sent.")), view)) == 1


def test_another_answering_tool_can_be_named() -> None:
    view = View(tool_name="square", tool_kwarg="x")
    call = ToolCall("c", "square", '{"x": "three"}')
    (message,) = wire_messages(row(Role.assistant, tool_calls=(call,)), view)
    assert message["content"] == "three"


@pytest.mark.parametrize("arguments", ["{", "[]", '{"message": 3}', ""])
def test_an_answer_that_cannot_be_read_stays_a_call(arguments: str) -> None:
    (message,) = wire_messages(row(Role.assistant, tool_calls=(ToolCall("c", "send_message", arguments),)))
    assert message["message_type"] == "tool_call_message"
    assert message["tool_call"]["arguments"] == arguments


def test_a_failed_return_of_the_answering_tool_is_not_hidden() -> None:
    (message,) = wire_messages(_returned(ToolReturn("call_1", "send_message", False, "too long")))
    assert message["status"] == "error"


def test_tool_returns_share_one_message_with_the_first_on_top() -> None:
    first = ToolReturn("call_1", "square", True, "9", stdout=("out\n",), stderr=())
    second = ToolReturn("call_2", "twice", False, "no")
    (message,) = wire_messages(_returned(first, second))
    assert (message["name"], message["tool_return"], message["status"]) == ("square", "9", "success")
    assert message["stdout"] == ["out\n"] and message["stderr"] == []
    assert [r["status"] for r in message["tool_returns"]] == ["success", "error"]
    assert message["tool_returns"][1]["stdout"] is None
    assert {r["type"] for r in message["tool_returns"]} == {"tool"}
    check_message(message)


def test_what_was_said_keeps_the_clients_own_id() -> None:
    (message,) = wire_messages(row(Role.user, "hi", otid="mine", name="bob", sender_id="s"))
    assert (message["otid"], message["name"], message["sender_id"], message["content"]) == ("mine", "bob", "s", "hi")
    check_message(message)


def test_parts_are_kept_apart_when_there_is_more_than_one_text() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    (message,) = wire_messages(row(Role.user, Text("look"), Image(source)))
    assert message["content"] == [
        {"type": "text", "text": "look", "signature": None},
        {"type": "image", "source": source},
    ]
    check_message(message)


@pytest.mark.parametrize(("data", "state"), [(None, "omitted"), ("x", "redacted")])
def test_hidden_reasoning(data: str | None, state: str) -> None:
    (message,) = wire_messages(row(Role.assistant, HiddenReasoning(data)))
    assert (message["state"], message["hidden_reasoning"]) == (state, data)
    check_message(message)


def test_a_summary_reads_as_a_users_message() -> None:
    (message,) = wire_messages(row(Role.summary, "earlier"))
    assert (message["message_type"], message["content"]) == ("user_message", "earlier")


def test_only_wanted_types_are_shown_and_keep_their_place() -> None:
    view = View(types=frozenset({"tool_call_message"}))
    (message,) = wire_messages(row(Role.assistant, "text", tool_calls=(SQUARE,)), view)
    assert message["otid"] == part_otid(MESSAGE, 1)


def _returned(*results: ToolReturn) -> Message:
    return row(Role.tool, tool_returns=results, name=results[0].name)


def test_a_summary_reads_as_a_users_message_unless_compaction_is_asked_for() -> None:
    stats = CompactionStats("post_step_context_check", 900, 100, 1000, 12, 4)
    run = Run(RUN, AGENT, RunStatus.running, 0)
    summary = summary_row(run, MESSAGE, "Ann likes tea.", stats, 0, "otid")
    (plain,) = wire_messages(summary)
    check_message(plain)
    assert plain["message_type"] == "user_message"
    packed = json.loads(plain["content"])
    assert (packed["type"], packed["compaction_stats"]) == ("system_alert", stats.to_json())
    (shown,) = wire_messages(summary, View(compaction=True))
    check_message(shown)
    assert shown["message_type"] == "summary_message"
    assert (shown["summary"], shown["compaction_stats"]) == ("Ann likes tea.", stats.to_json())
    assert shown["otid"] == part_otid(MESSAGE, 0)
