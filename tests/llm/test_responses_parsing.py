"""What comes in as OpenAI's responses: our reading beside that of the official SDK, on the same bytes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from kelpie.core.conversations.messages import HiddenReasoning, Part, Reasoning, Text
from kelpie.llm.openai.responses import OpenAI
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import Event, ReasoningDelta, Reply, Request
from tests.llm.fakes import EAGER, Fake, answer, asking, completion, events, fake, world
from tests.llm.shapes import framed, load, same_as_deltas

SHAPES = load("responses")
STREAMS = {
    name: [*pieces[:-1], {**pieces[-1], "response": SHAPES["whole"][pieces[-1]["response"]]}]
    for name, pieces in SHAPES["streams"].items()
}
ENDS = ("response.completed", "response.incomplete")
REFUSALS: Any = {"max_output_tokens": "length", "content_filter": "content_filter"}


def ask(**fields: Any) -> Request:
    return asking(model="gpt-5-mini", **fields)


@asynccontextmanager
async def provider(made: Fake, responses: bool | None = True) -> AsyncIterator[OpenAI]:
    chat = OpenAI(world(), Endpoint("openai", made.url, "sk-test", responses=responses), EAGER)
    try:
        yield chat
    finally:
        await chat.close()


async def ours(made: Fake, request: Request) -> list[Event]:
    async with provider(made) as chat:
        return [event async for event in chat.stream(request)]


def same(reply: Reply, official: Response) -> None:
    """Our reply says what the SDK's object says."""
    content: list[Part] = []
    calls: list[tuple[str, str, str]] = []
    for item in official.output:
        match item.type:
            case "message":
                texts = (part.text if part.type == "output_text" else part.refusal for part in item.content)
                content.append(Text("".join(texts)))
            case "reasoning" if item.summary:
                summary = "\n\n".join(part.text for part in item.summary)
                content.append(Reasoning(summary, signature=item.encrypted_content))
            case "reasoning":
                content.append(HiddenReasoning(item.encrypted_content))
            case "function_call":
                calls.append((item.call_id, item.name, item.arguments))
            case _:
                raise AssertionError(item.type)
    assert list(reply.content) == content
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == calls
    details = official.incomplete_details
    finish = REFUSALS[details.reason] if details else "tool_calls" if calls else "stop"
    assert reply.finish_reason == finish
    usage = official.usage
    assert usage is not None
    told = reply.usage
    assert (told.prompt_tokens, told.completion_tokens) == (usage.input_tokens, usage.output_tokens)
    assert told.total_tokens == usage.total_tokens
    assert told.cached_input_tokens == usage.input_tokens_details.cached_tokens
    assert told.cache_write_tokens == usage.input_tokens_details.cache_write_tokens
    assert told.reasoning_tokens == usage.output_tokens_details.reasoning_tokens


@pytest.mark.parametrize("name", SHAPES["whole"])
async def test_whole_replies_are_read_as_the_official_sdk_reads_them(name: str):
    async with fake() as made:
        made.will(answer(SHAPES["whole"][name]))
        sdk = openai.AsyncOpenAI(base_url=made.url, api_key="sk-test", max_retries=0)
        official = await sdk.responses.create(model="m", input="hi")
        await sdk.close()
        given = await ours(made, ask())
    assert len(given) == 1 and isinstance(given[0], Reply)
    same(given[0], official)


@pytest.mark.parametrize("name", STREAMS)
async def test_streams_are_read_as_the_official_sdk_reads_them(name: str):
    async with fake() as made:
        made.will(events(*framed(*STREAMS[name])))
        sdk = openai.AsyncOpenAI(base_url=made.url, api_key="sk-test", max_retries=0)
        async with sdk.responses.stream(model="m", input="hi") as stream:
            ends = [event.response async for event in stream if event.type in ENDS]
        await sdk.close()
        given = await ours(made, ask(deltas=True))
    [official] = ends
    same(same_as_deltas(given), official)


async def test_thoughts_are_streamed_with_their_parts_apart():
    async with fake() as made:
        made.will(events(*framed(*STREAMS["thoughts and calls"])))
        given = await ours(made, ask(deltas=True))
    thoughts = [(event.text, event.hidden) for event in given if isinstance(event, ReasoningDelta)]
    assert [text for text, hidden in thoughts if not hidden] == ["Two ", "sums.", "\n\n", "First one."]
    assert [text for text, hidden in thoughts if hidden] == ["gAAAAABtwo"]


async def test_what_was_not_streamed_is_told_at_the_end():
    async with fake() as made:
        for pieces in (STREAMS["thoughts and calls"][-1:], [STREAMS["text"][0], STREAMS["text"][-1]]):
            made.will(events(*framed(*pieces)))
            same_as_deltas(await ours(made, ask(deltas=True)))
        made.will(answer(SHAPES["whole"]["thoughts and calls"]))
        same_as_deltas(await ours(made, ask(deltas=True)))


async def test_calls_without_ids_get_ids_that_follow_from_the_request():
    call = {"type": "function_call", "name": "add", "arguments": "{}"}
    async with fake() as made:
        made.will(answer({**SHAPES["whole"]["text"], "output": [call, call]}))
        first, again = [(await ours(made, ask()))[0] for _ in range(2)]
    assert isinstance(first, Reply) and first == again
    assert len({call.id for call in first.tool_calls}) == 2


@pytest.mark.parametrize(
    ("model", "responses", "path"),
    [
        ("gpt-5-mini", True, "/v1/responses"),
        ("o4-mini", True, "/v1/responses"),
        ("gpt-5-codex", True, "/v1/responses"),
        ("gpt-4o", True, "/v1/chat/completions"),
        ("gpt-5-mini", None, "/v1/chat/completions"),
        ("gpt-5-mini", False, "/v1/chat/completions"),
    ],
)
async def test_which_protocol_is_spoken(model: str, responses: bool | None, path: str):
    async with fake() as made, provider(made, responses) as chat:
        made.will(answer(SHAPES["whole"]["text"] if "responses" in path else completion({"content": "Hi."})))
        [event async for event in chat.stream(replace(ask(), model=model))]
        assert made.heard[0].path == path


def test_openais_own_address_speaks_responses():
    for url, own in (("https://api.openai.com/v1", True), ("https://api.openai.com.example/v1", False)):
        chat = OpenAI(world(), Endpoint("openai", url))
        assert chat._offers("gpt-5-codex") is own
        assert chat._offers("gpt-5") and not chat._offers("gpt-image-1")
