"""What comes in: our reading of replies beside that of the official SDK, on the same bytes over the same HTTP."""

from typing import Any

import openai
import pytest

from kelpie.core.conversations.messages import Reasoning, Text, ToolCall, Usage
from kelpie.llm.provider.interface import Event, ReasoningDelta, Reply, Request, TextDelta, ToolCallDelta
from tests.llm.fakes import DONE, USAGE, Fake, answer, asking, chunk, completion, events, fake, provider

CALLS = [
    {"id": "call_a", "type": "function", "function": {"name": "add", "arguments": '{"x": 1, "y": "ü  "}'}},
    {"id": "call_b", "type": "function", "function": {"name": "sub", "arguments": "{}"}},
]
DETAILED = {
    **USAGE,
    "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 3},
}

WHOLE = {
    "text": completion({"content": "Hello, wörld. Two.\u0085", "refusal": None}),
    "calls": completion({"content": None, "tool_calls": CALLS}, "tool_calls", DETAILED),
    "text and calls": completion({"content": "Let me see.", "tool_calls": CALLS[:1]}, "tool_calls"),
    "cut by length": completion({"content": "Once upon"}, "length"),
    "filtered": completion({"content": ""}, "content_filter"),
}


def piece(index: int, arguments: str = "", **fields: Any) -> dict[str, Any]:
    name = {"name": fields.pop("name")} if "name" in fields else {}
    return {"index": index, **fields, "function": {**name, "arguments": arguments}}


STREAMS: dict[str, list[Any]] = {
    "text": [
        ": a comment\n\n",
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hello, "}),
        ":\n\n: keep-alive\n\n",
        chunk({"content": "wörld.\u2028 Two\x85."}),
        chunk({}, "stop"),
        chunk(None, usage=DETAILED),
        DONE,
    ],
    "interleaved calls": [
        chunk(
            {"role": "assistant", "content": None, "tool_calls": [piece(0, id="call_a", type="function", name="add")]}
        ),
        chunk({"tool_calls": [piece(0, '{"x"')]}),
        chunk({"tool_calls": [piece(1, id="call_b", type="function", name="sub")]}),
        chunk({"tool_calls": [piece(0, ": 1}"), piece(1, "{}")]}),
        chunk({}, "tool_calls"),
        chunk(None, usage=USAGE),
        DONE,
    ],
    "usage with the last choice": [chunk({"content": "Hi."}), chunk({}, "stop", usage=USAGE), DONE],
    "carriage returns": [
        'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        '[{"index":0,"delta":{"content":"Hi."},"finish_reason":"stop"}]}\r\n\r\n',
        "data: [DONE]\r\n\r\n",
    ],
}


async def ours(made: Fake, request: Request) -> list[Event]:
    async with provider(made) as chat:
        return [event async for event in chat.stream(request)]


def same(reply: Event, official: Any) -> None:
    """Our reply says what the SDK's object says."""
    assert isinstance(reply, Reply)
    choice = official.choices[0]
    text = "".join(part.text for part in reply.content if isinstance(part, Text))
    assert text == (choice.message.content or "")
    assert reply.finish_reason == choice.finish_reason
    calls = [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == calls
    if official.usage is not None:
        usage = official.usage
        assert reply.usage.prompt_tokens == usage.prompt_tokens
        assert reply.usage.completion_tokens == usage.completion_tokens
        assert reply.usage.total_tokens == usage.total_tokens
        cached = usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens
        thought = usage.completion_tokens_details and usage.completion_tokens_details.reasoning_tokens
        assert (reply.usage.cached_input_tokens, reply.usage.reasoning_tokens) == (cached, thought)


@pytest.mark.parametrize("name", WHOLE)
async def test_whole_replies_are_read_as_the_official_sdk_reads_them(name: str):
    async with fake() as made:
        made.will(answer(WHOLE[name]))
        sdk = openai.AsyncOpenAI(base_url=made.url, api_key="sk-test", max_retries=0)
        official = await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        await sdk.close()
        given = await ours(made, asking())
    assert len(given) == 1
    same(given[0], official)


@pytest.mark.parametrize("name", STREAMS)
async def test_streams_are_read_as_the_official_sdk_reads_them(name: str):
    async with fake() as made:
        made.will(events(*STREAMS[name]))
        sdk = openai.AsyncOpenAI(base_url=made.url, api_key="sk-test", max_retries=0)
        async with sdk.chat.completions.stream(model="m", messages=[{"role": "user", "content": "hi"}]) as stream:
            official = await stream.get_final_completion()
        await sdk.close()
        given = await ours(made, asking(deltas=True))
    same(given[-1], official)
    assert isinstance(given[-1], Reply)
    same_as_deltas(given[:-1], given[-1])


def same_as_deltas(deltas: list[Event], reply: Reply) -> None:
    """What was streamed adds up to what is in the reply."""
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "".join(
        part.text for part in reply.content if isinstance(part, Text)
    )
    for index, call in enumerate(reply.tool_calls):
        mine = [delta for delta in deltas if isinstance(delta, ToolCallDelta) and delta.index == index]
        assert (mine[0].id, mine[0].name) == (call.id, call.name)
        assert "".join(delta.arguments for delta in mine) == call.arguments
        assert all(delta.id is None and delta.name is None for delta in mine[1:])


async def reply_to(*pieces: Any) -> tuple[list[Event], Reply]:
    async with fake() as made:
        made.will(events(*pieces))
        given = await ours(made, asking(deltas=True))
    assert isinstance(given[-1], Reply)
    same_as_deltas(given[:-1], given[-1])
    return given, given[-1]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_under_either_name(field: str):
    given, reply = await reply_to(
        chunk({field: "Let me "}), chunk({field: "think."}), chunk({"content": "Four."}, "stop"), DONE
    )
    assert [event.text for event in given if isinstance(event, ReasoningDelta)] == ["Let me ", "think."]
    assert reply.content == (Reasoning("Let me think."), Text("Four."))


async def test_calls_without_ids_get_ids_that_follow_from_the_request():
    pieces = [
        chunk({"tool_calls": [{"function": {"name": "add", "arguments": '{"x":1}'}}]}),
        chunk({"tool_calls": [{"function": {"name": "sub", "arguments": ""}}]}),
        chunk({"tool_calls": [{"function": {"arguments": "{}"}}]}, "stop"),
        DONE,
    ]
    _, reply = await reply_to(*pieces)
    first, second = reply.tool_calls
    assert (first.name, first.arguments, second.name, second.arguments) == ("add", '{"x":1}', "sub", "{}")
    assert first.id != second.id and first.id.startswith("call_") and first.id[5:].isdigit()
    assert reply.finish_reason == "tool_calls"
    assert (await reply_to(*pieces))[1].tool_calls == reply.tool_calls


async def test_a_server_that_numbers_every_call_zero():
    _, reply = await reply_to(
        chunk({"tool_calls": [piece(0, "{}", id="a", name="add")]}),
        chunk({"tool_calls": [piece(0, '{"x":', id="b", name="sub")]}),
        chunk({"tool_calls": [piece(0, "1}")]}, "tool_calls"),
        DONE,
    )
    assert reply.tool_calls == (ToolCall("a", "add", "{}"), ToolCall("b", "sub", '{"x":1}'))


async def test_a_server_that_repeats_id_and_name_with_every_piece():
    _, reply = await reply_to(
        chunk({"tool_calls": [piece(0, '{"x"', id="a", name="add")]}),
        chunk({"tool_calls": [piece(0, ":1}", id="a", name="add")]}, "tool_calls"),
        DONE,
    )
    assert reply.tool_calls == (ToolCall("a", "add", '{"x":1}'),)


async def test_two_calls_with_one_id_are_told_apart():
    async with fake() as made:
        twice = [{"id": "x", "type": "function", "function": {"name": "add", "arguments": "{}"}}] * 2
        made.will(answer(completion({"content": None, "tool_calls": twice}, "tool_calls")))
        reply = (await ours(made, asking()))[0]
    assert isinstance(reply, Reply)
    assert len({call.id for call in reply.tool_calls}) == 2


async def test_a_refusal_is_an_answer():
    given, reply = await reply_to(chunk({"refusal": "I will "}), chunk({"refusal": "not."}, "stop"), DONE)
    assert reply.content == (Text("I will not."),)
    assert given[0] == TextDelta("I will ")


async def test_content_in_parts_and_arguments_as_an_object():
    async with fake() as made:
        call = {"id": "a", "function": {"name": "add", "arguments": {"x": 1}}}
        parts = [{"type": "text", "text": "Let me "}, {"type": "text", "text": "see."}]
        made.will(answer(completion({"content": parts, "tool_calls": [call]}, "tool_calls")))
        reply = (await ours(made, asking()))[0]
    assert isinstance(reply, Reply)
    assert reply.content == (Text("Let me see."),)
    assert reply.tool_calls == (ToolCall("a", "add", '{"x":1}'),)


async def test_usage_that_is_missing_or_told_otherwise():
    _, without = await reply_to(chunk({"content": "Hi."}, "stop"), DONE)
    assert without.usage == Usage()
    counted = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4}
    _, reply = await reply_to(chunk({"content": "Hi."}, "stop"), chunk(None, usage=counted), DONE)
    assert reply.usage == Usage(9, 1, 10, cached_input_tokens=4)


async def test_a_whole_reply_where_a_stream_was_asked_for():
    async with fake() as made:
        made.will(answer(completion({"content": "Hi."})))
        given = await ours(made, asking(deltas=True))
    assert given[0] == TextDelta("Hi.")
    assert isinstance(given[-1], Reply) and given[-1].content == (Text("Hi."),)
