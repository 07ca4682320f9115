"""What goes out as OpenAI's responses, and which models it goes out for."""

import json
from typing import Any

import pytest

from kelpie.core.conversations.messages import HiddenReasoning, Image, Reasoning, Role, ToolCall, ToolReturn
from kelpie.llm.openai.responses_request import WIRE, encode_request, forget_thoughts
from kelpie.llm.provider.interface import Request
from tests.llm.fakes import asking, called, message, returned, said, tool

INCLUDE = ["reasoning.encrypted_content"]


def body(request: Request, **options: Any) -> dict[str, Any]:
    return json.loads(encode_request(request, **options))


def ask(model: str = "gpt-5-mini", **fields: Any) -> Request:
    return asking(model=model, **fields)


def items(*rows: Any) -> list[dict[str, Any]]:
    return body(ask(system="", messages=list(rows)))["input"]


def test_a_conversation_in_order_and_nothing_kept_by_the_provider():
    sent = body(ask(messages=[said("hi"), message(Role.system, "an alert", number=2)]))
    assert sent["input"] == [
        {"type": "message", "role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "message", "role": "system", "content": "an alert"},
    ]
    assert sent["store"] is False
    assert sent["include"] == INCLUDE
    assert sent["reasoning"] == {"summary": "auto"}
    assert "messages" not in sent


def test_thoughts_calls_and_returns():
    calls = (ToolCall("a", "add", '{"x": 1}'), ToolCall("b", "sub", "{}"))
    returns = (ToolReturn("a", "add", True, "2"), ToolReturn("b", "sub", False, "no"))
    assert items(
        message(Role.assistant, Reasoning("hmm", signature="gAAAAone"), HiddenReasoning("gAAAAtwo"), tool_calls=calls),
        message(Role.tool, tool_returns=returns, number=2),
    ) == [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hmm"}], "encrypted_content": "gAAAAone"},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAtwo"},
        {"type": "function_call", "call_id": "a", "name": "add", "arguments": '{"x": 1}'},
        {"type": "function_call", "call_id": "b", "name": "sub", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "2"},
        {"type": "function_call_output", "call_id": "b", "output": "no"},
    ]


def test_a_thought_goes_back_only_with_what_followed_it():
    thought = Reasoning("hmm", signature="gAAAA")
    assert items(message(Role.assistant, thought)) == []
    assert [item["type"] for item in items(message(Role.assistant, thought, "hello"))] == ["reasoning", "message"]
    unsigned = message(Role.assistant, Reasoning("hmm"), Reasoning("aloud", native=False), HiddenReasoning(), "hello")
    assert [item["type"] for item in items(unsigned)] == ["message"]


def test_images():
    content = items(
        message(
            Role.user,
            "look",
            Image({"type": "base64", "media_type": "image/jpeg", "data": "QUJD", "detail": "low"}),
            Image({"type": "url", "url": "https://example.com/a.png"}),
            Image({"type": "letta", "file_id": "file-1"}),
        )
    )[0]["content"]
    assert content[:3] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/jpeg;base64,QUJD", "detail": "low"},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
    ]
    assert content[3]["type"] == "input_text"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("auto", "auto"), ("required", "required"), ("none", "none"), ("add", {"type": "function", "name": "add"})],
)
def test_tools_and_the_choice_among_them(choice: str, expected: object):
    sent = body(ask(tools=[tool("add", "x", x="integer")], tool_choice=choice))
    assert sent["tool_choice"] == expected
    assert sent["parallel_tool_calls"] is False
    assert sent["tools"] == [
        {
            "type": "function",
            "name": "add",
            "description": "About add.",
            "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
            "strict": False,
        }
    ]
    assert "parallel_tool_calls" not in body(ask("o4-mini", tools=[tool("add")]))
    assert body(ask(tool_choice=choice)).keys().isdisjoint({"tools", "tool_choice", "parallel_tool_calls"})


def test_settings():
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    options = {
        "reasoning": {"reasoning_effort": "low"},
        "verbosity": "high",
        "response_format": {"type": "json_schema", "json_schema": schema},
        "made_up": 1,
    }
    sent = body(ask(options=options, temperature=0.5, max_tokens=100, deltas=True, user="agent-1"))
    assert sent["reasoning"] == {"summary": "auto", "effort": "low"}
    assert sent["text"] == {"format": {"type": "json_schema", **schema}, "verbosity": "high"}
    assert (sent["max_output_tokens"], sent["stream"], sent["prompt_cache_key"]) == (100, True, "agent-1")
    assert sent.keys().isdisjoint({"temperature", "made_up", "response_format"})
    assert body(ask(options=options), summary=False)["reasoning"] == {"effort": "low"}
    plain = body(ask("gpt-4o", temperature=0.5))
    assert plain["temperature"] == 0.5
    assert plain.keys().isdisjoint({"reasoning", "include", "text", "stream"})


def test_a_row_is_encoded_once_until_its_thoughts_are_forgotten():
    row = message(Role.assistant, Reasoning("hmm", signature="gAAAA"), "hello", number=2)
    request = ask(messages=[said("hi"), row, called("add", number=3), returned("add", "2", number=4)])
    first = encode_request(request)
    kept = row.wire[WIRE]
    assert encode_request(request) == first and row.wire[WIRE] is kept
    assert forget_thoughts(request)
    assert b"reasoning_text" not in encode_request(request) and row.wire[WIRE] != kept
    assert [item["type"] for item in body(request)["input"]][:3] == ["message"] * 3
    assert not forget_thoughts(ask())
