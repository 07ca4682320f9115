"""What goes out: a request in OpenAI's words."""

import json
from types import MappingProxyType
from typing import Any

import pytest

from kelpie.core.conversations.messages import Image, Reasoning, Role, ToolCall, ToolReturn
from kelpie.llm.catalog.openai_traits import reasons
from kelpie.llm.openai.chat_request import WIRE, encode_message, encode_request
from kelpie.llm.provider.interface import PreparedMessage, Request, ToolSchema
from tests.llm.fakes import asking, called, message, said, tool


def body(request: Request) -> dict[str, Any]:
    return json.loads(encode_request(request))


def wire(prepared: PreparedMessage) -> list[dict[str, Any]]:
    return json.loads(b"[" + encode_message(prepared) + b"]")


def test_a_conversation_in_order():
    history = [
        said("hi"),
        message(Role.assistant, Reasoning("hmm"), "hello", number=2),
        message(Role.system, "an alert", number=3),
        message(Role.summary, "what was before", number=4),
    ]
    assert body(asking(messages=history))["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "system", "content": "an alert"},
        {"role": "user", "content": "what was before"},
    ]


def test_tool_calls_and_several_returns_in_one_row():
    calls = (ToolCall("a", "add", '{"x": 1}'), ToolCall("b", "sub", "{}"))
    returns = (ToolReturn("a", "add", True, "2"), ToolReturn("b", "sub", False, "no"))
    assert wire(message(Role.assistant, "Let me see.", tool_calls=calls)) == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}},
                {"id": "b", "type": "function", "function": {"name": "sub", "arguments": "{}"}},
            ],
        }
    ]
    assert wire(message(Role.tool, tool_returns=returns)) == [
        {"role": "tool", "tool_call_id": "a", "content": "2"},
        {"role": "tool", "tool_call_id": "b", "content": "no"},
    ]


def test_an_approval_request_is_an_assistant_message_and_an_empty_row_is_none():
    request = message(Role.approval, tool_calls=(ToolCall("a", "add", "{}"),))
    assert wire(request)[0]["role"] == "assistant"
    history = [said("hi"), message(Role.approval, number=2), message(Role.assistant, Reasoning("only"), number=3)]
    assert len(body(asking(messages=history))["messages"]) == 2


def test_images():
    shown = wire(
        message(
            Role.user,
            "look",
            Image({"type": "base64", "media_type": "image/jpeg", "data": "QUJD", "detail": "low"}),
            Image({"type": "url", "url": "https://example.com/a.png"}),
            Image({"type": "letta", "file_id": "file-1"}),
        )
    )[0]["content"]
    assert shown[0] == {"type": "text", "text": "look"}
    assert shown[1] == {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,QUJD", "detail": "low"}}
    assert shown[2] == {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert shown[3]["type"] == "text"


def test_a_message_is_encoded_once():
    prepared = said("hi")
    first = encode_request(asking(messages=[prepared]))
    kept = prepared.wire[WIRE]
    assert encode_request(asking(messages=[prepared])) == first
    assert prepared.wire[WIRE] is kept
    prepared.wire[WIRE] = b'{"role":"user","content":"from the cache"}'
    assert body(asking(messages=[prepared]))["messages"][1]["content"] == "from the cache"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ("add", {"type": "function", "function": {"name": "add"}}),
    ],
)
def test_tools_and_the_choice_among_them(choice: str, expected: object):
    sent = body(asking(tools=[tool("add", "x", x="integer")], tool_choice=choice, parallel_tool_calls=True))
    assert sent["tool_choice"] == expected
    assert sent["parallel_tool_calls"] is True
    assert sent["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "add",
                "description": "About add.",
                "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
            },
        }
    ]


def test_without_tools_nothing_is_said_about_them():
    sent = body(asking(tool_choice="required", parallel_tool_calls=True))
    assert sent.keys().isdisjoint({"tools", "tool_choice", "parallel_tool_calls"})


@pytest.mark.parametrize("model", ["o1", "o3-mini", "o4-mini-2025-04-16", "gpt-5", "gpt-5-mini", "openai/o3"])
def test_reasoning_models_take_other_parameters(model: str):
    options = {"reasoning_effort": "low"}
    sent = body(asking(model=model, temperature=0.5, max_tokens=100, options=options, tools=[tool("add")]))
    assert reasons(model)
    assert sent["max_completion_tokens"] == 100 and sent["reasoning_effort"] == "low"
    assert "temperature" not in sent and "max_tokens" not in sent
    assert ("parallel_tool_calls" in sent) == model.startswith("gpt-5")


def test_the_effort_may_lie_inside_the_agents_settings():
    settings = {"provider_type": "openai", "reasoning": {"reasoning_effort": "minimal"}, "verbosity": "low"}
    sent = body(asking(model="gpt-5", options=settings))
    assert (sent["reasoning_effort"], sent["verbosity"]) == ("minimal", "low")
    assert sent.keys().isdisjoint({"reasoning", "provider_type"})
    assert body(asking(model="gpt-4o", options=settings)).keys() == {"model", "messages"}


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "gpt-5-chat-latest", "llama3", "olmo-2", "gpt-oss-20b"])
def test_other_models_take_the_usual_ones(model: str):
    sent = body(asking(model=model, temperature=0.5, max_tokens=100, options={"reasoning_effort": "low"}))
    assert sent["max_tokens"] == 100 and sent["temperature"] == 0.5
    assert "max_completion_tokens" not in sent and "reasoning_effort" not in sent


def test_options_streaming_and_user():
    options = {
        "response_format": MappingProxyType({"type": "json_object", "x": MappingProxyType({})}),
        "seed": None,
        "made_up": 1,
    }
    sent = body(asking(options=options, deltas=True, user="user-1"))
    assert sent["response_format"] == {"type": "json_object", "x": {}}
    assert "seed" not in sent and "made_up" not in sent
    assert sent["stream"] is True and sent["stream_options"] == {"include_usage": True}
    assert sent["user"] == "user-1"
    assert "stream" not in body(asking())


def test_text_that_is_not_quite_unicode_does_not_fail_the_call():
    sent = body(asking(system="s \ud83d", messages=[said("half \ud83d a pair")]))
    assert sent["messages"][1]["content"] == "half ? a pair"


def test_a_schema_may_be_any_mapping_and_hold_large_numbers():
    schema = ToolSchema("big", "d", MappingProxyType({"type": "object", "maximum": 2**70}))
    assert body(asking(tools=[schema]))["tools"][0]["function"]["parameters"]["maximum"] == 2**70


def test_names_that_the_wire_refuses_are_left_out():
    assert wire(message(Role.user, "hi", name="ada"))[0]["name"] == "ada"
    assert "name" not in wire(message(Role.user, "hi", name="Ada Lovelace"))[0]


def test_call_without_text_has_null_content():
    assert wire(called("add"))[0]["content"] is None
