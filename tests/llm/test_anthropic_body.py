"""What goes out to Anthropic: the shape of messages, and what each model is and is not sent."""

import json
from typing import Any

import pytest

from kelpie.core.conversations.messages import HiddenReasoning, Image, Reasoning, Role, ToolCall, ToolReturn
from kelpie.llm.anthropic.message_rows import WIRE
from kelpie.llm.anthropic.messages_request import encode_request, forget_thoughts
from kelpie.llm.provider.interface import Request
from tests.llm.fakes import asking, called, message, returned, said, tool

OLD, NEW, NEWEST = "claude-sonnet-4-5-20250929", "claude-opus-5", "claude-opus-5-5"
CACHE = {"cache_control": {"type": "ephemeral"}}
THOUGHT = Reasoning("hmm", signature="Esig")


def body(request: Request, **options: Any) -> dict[str, Any]:
    return json.loads(encode_request(request, **options))


def ask(model: str = OLD, **fields: Any) -> Request:
    return asking(model=model, **fields)


def messages(*rows: Any) -> list[dict[str, Any]]:
    return body(ask(messages=list(rows)))["messages"]


def test_the_system_prompt_and_the_last_block_are_marked_for_the_cache():
    sent = body(ask(messages=[said("hi"), message(Role.assistant, "hello", number=2), said("more", 3)]))
    assert sent["system"] == [{"type": "text", "text": "Be brief.", **CACHE}]
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}]},
        {"role": "user", "content": [{"type": "text", "text": "more", **CACHE}]},
    ]
    assert sent["max_tokens"] == 16_384
    assert "system" not in body(ask(system=" "))


def test_all_results_of_a_turn_are_in_one_message_before_anything_else():
    calls = (ToolCall("a", "add", '{"x": 1}'), ToolCall("b:0", "sub", ""))
    sent = messages(
        said("hi"),
        message(Role.assistant, THOUGHT, HiddenReasoning("Ehid"), "Let me see.", tool_calls=calls, number=2),
        returned("add", "2", "a", number=3),
        message(Role.user, "a heartbeat", number=4),
        message(Role.tool, tool_returns=(ToolReturn("b:0", "sub", False, "no"),), number=5),
    )
    assert [turn["role"] for turn in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"] == [
        {"type": "thinking", "thinking": "hmm", "signature": "Esig"},
        {"type": "redacted_thinking", "data": "Ehid"},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "a", "name": "add", "input": {"x": 1}},
        {"type": "tool_use", "id": "b_0", "name": "sub", "input": {}},
    ]
    assert sent[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "2"},
        {"type": "tool_result", "tool_use_id": "b_0", "content": "no", "is_error": True},
        {"type": "text", "text": "a heartbeat", **CACHE},
    ]


def test_rows_of_one_side_become_one_message():
    sent = messages(
        message(Role.summary, "before"), said("hi", 2), message(Role.system, "an alert", number=3), said("  ", 4)
    )
    assert sent == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "before"},
                {"type": "text", "text": "hi"},
                {"type": "text", "text": "<system>\nan alert\n</system>", **CACHE},
            ],
        }
    ]


def test_a_conversation_begins_and_ends_with_the_users_side():
    sent = messages(message(Role.assistant, "hello"), message(Role.assistant, "again", number=2))
    assert [turn["role"] for turn in sent] == ["user", "assistant", "user"]
    assert all(turn["content"][0]["text"].strip() for turn in sent)
    assert [turn["role"] for turn in messages()] == ["user"]


def test_thoughts_of_others_are_not_sent():
    row = message(
        Role.assistant,
        Reasoning("not signed"),
        Reasoning("aloud", native=False, signature="Esig"),
        Reasoning("OpenAI's", signature="gAAAAABx"),
        HiddenReasoning("gAAAAABx"),
        HiddenReasoning(),
        "hello",
    )
    assert messages(said("hi"), row)[1]["content"] == [{"type": "text", "text": "hello"}]


def test_arguments_that_are_no_object_are_kept_as_text():
    sent = messages(said("hi"), called("add", "[1]"), returned("add", "2"), called("add", "{bro", "call_2", 4))
    uses = [block["input"] for turn in sent for block in turn["content"] if block["type"] == "tool_use"]
    assert uses == [{"arguments": "[1]"}, {"arguments": "{bro"}]


def test_images():
    content = messages(
        message(
            Role.user,
            Image({"type": "base64", "media_type": "image/jpeg", "data": "QUJD", "detail": "low"}),
            Image({"type": "url", "url": "https://example.com/a.png"}),
            Image({"type": "url", "url": "data:image/gif;base64,QUJD"}),
            Image({"type": "letta", "file_id": "file-1"}),
            "look",
        )
    )[0]["content"]
    assert content[0]["source"] == {"type": "base64", "media_type": "image/jpeg", "data": "QUJD"}
    assert content[1]["source"] == {"type": "url", "url": "https://example.com/a.png"}
    assert content[2]["source"] == {"type": "base64", "media_type": "image/gif", "data": "QUJD"}
    assert content[3]["type"] == "text"


def test_a_row_is_encoded_once_and_the_mark_is_not_kept_with_it():
    row = said("hi")
    first = encode_request(ask(messages=[row]))
    assert row.wire[WIRE] == b'{"type":"text","text":"hi"}'
    assert encode_request(ask(messages=[row])) == first
    row.wire[WIRE] = b'{"type":"text","text":"from the cache"}'
    assert body(ask(messages=[row]))["messages"][0]["content"][0]["text"] == "from the cache"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ("none", {"type": "none"}),
        ("add", {"type": "tool", "name": "add"}),
    ],
)
def test_tools_and_the_choice_among_them(choice: str, expected: dict[str, Any]):
    tools = [tool("add", "x", x="integer")]
    sent = body(ask(tools=tools, tool_choice=choice, parallel_tool_calls=True))
    assert sent["tool_choice"] == expected
    assert sent["tools"] == [
        {
            "name": "add",
            "description": "About add.",
            "input_schema": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        }
    ]
    single = {} if choice == "none" else {"disable_parallel_tool_use": True}
    assert body(ask(tools=tools, tool_choice=choice))["tool_choice"] == {**expected, **single}
    assert body(ask(tool_choice=choice)).keys().isdisjoint({"tools", "tool_choice"})


BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        (OLD, {}, None),
        (OLD, BUDGET, {"type": "enabled", "budget_tokens": 2000}),
        (OLD, {"thinking": {"type": "enabled", "budget_tokens": 1}}, {"type": "enabled", "budget_tokens": 1024}),
        (OLD, {"thinking": {"type": "disabled"}}, None),
        ("claude-opus-4-6", {"thinking": {"type": "adaptive"}}, {"type": "adaptive"}),
        ("claude-opus-4-8", {}, None),
        ("claude-opus-4-8", BUDGET, ADAPTIVE),
        (NEW, {}, ADAPTIVE),
        (NEW, {"thinking": {"type": "disabled"}}, {"type": "disabled"}),
        (NEWEST, BUDGET, ADAPTIVE),
        (NEWEST, {"thinking": {"type": "disabled"}}, None),
        ("claude-sonnet-5-5", {"thinking": {"type": "disabled"}}, {"type": "between_tools"}),
        ("claude-fable-5-1", {}, ADAPTIVE),
    ],
)
def test_thinking_as_each_model_takes_it(model: str, options: dict[str, Any], expected: dict[str, Any] | None):
    assert body(ask(model, options=options)).get("thinking") == expected


def test_a_budget_leaves_the_answer_the_room_it_had():
    assert body(ask(options=BUDGET, max_tokens=4096))["max_tokens"] == 4096
    assert body(ask(options=BUDGET, max_tokens=500))["max_tokens"] == 2500


@pytest.mark.parametrize(
    ("model", "options", "choice", "thinks"),
    [
        (OLD, {}, "any", False),
        (OLD, BUDGET, "auto", True),
        (NEW, {}, "any", False),
        (NEW, BUDGET, "auto", True),
        (NEWEST, {}, "auto", True),
        ("claude-haiku-5-5", {}, "auto", False),
    ],
)
def test_a_forced_tool_gives_way_where_it_would_be_refused(
    model: str, options: dict[str, Any], choice: str, thinks: bool
):
    sent = body(ask(model, options=options, tools=[tool("add")], tool_choice="required"))
    assert sent["tool_choice"]["type"] == choice
    assert (sent.get("thinking", {}).get("type") in ("enabled", "adaptive")) == thinks


def test_thinking_waits_when_the_thoughts_before_a_call_are_gone():
    calls = (ToolCall("a", "add", "{}"),)
    after = returned("add", "2", "a", number=3)
    for thought, thinks in ((THOUGHT, True), (Reasoning("OpenAI's", signature="gAAAAx"), False)):
        rows = [said("hi"), message(Role.assistant, thought, tool_calls=calls, number=2), after]
        assert ("thinking" in body(ask(messages=rows, options=BUDGET))) == thinks
        assert "thinking" not in body(ask(messages=rows, options=BUDGET), thoughts=False)
        assert "thinking" in body(ask(messages=[*rows, message(Role.assistant, "2", number=4)], options=BUDGET))


def test_thoughts_can_be_forgotten():
    row = message(Role.assistant, THOUGHT, "hello", number=2)
    request = ask(messages=[said("hi"), row])
    assert len(body(request)["messages"][1]["content"]) == 2
    assert forget_thoughts(request)
    assert body(request)["messages"][1]["content"] == [{"type": "text", "text": "hello"}]
    assert not forget_thoughts(ask())


def test_sampling_only_where_it_is_taken():
    assert body(ask(temperature=1.5))["temperature"] == 1.0
    assert body(ask(options={"top_p": 0.5}))["top_p"] == 0.5
    assert "top_p" not in body(ask(temperature=0.2, options={"top_p": 0.5}))
    for request in (ask(temperature=0.2, options=BUDGET), ask("claude-opus-4-7", temperature=0.2), ask(NEWEST)):
        assert body(request).keys().isdisjoint({"temperature", "top_p"})


def test_settings_stream_and_user():
    schema = {"type": "object", "properties": {}}
    options = {
        "effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        "stop": "END",
        "made_up": 1,
    }
    sent = body(ask(options=options, deltas=True, user="agent-1"))
    assert sent["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    assert sent["stop_sequences"] == ["END"]
    assert sent["metadata"] == {"user_id": "agent-1"}
    assert sent["stream"] is True
    assert "made_up" not in sent
    assert body(ask()).keys() == {"model", "max_tokens", "system", "messages"}


def test_text_that_is_not_quite_unicode_does_not_fail_the_call():
    sent = body(ask(system="s \ud83d", messages=[said("half \ud83d a pair")]))
    assert sent["messages"][0]["content"][0]["text"] == "half ? a pair"
    assert sent["system"][0]["cache_control"]
