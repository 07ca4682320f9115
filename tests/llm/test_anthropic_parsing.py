"""What comes in from Anthropic: our reading beside that of the official SDK, on the same bytes over the same HTTP."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kelpie.core.conversations.messages import HiddenReasoning, Reasoning, Text
from kelpie.llm.anthropic.messages import Anthropic
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import Event, ReasoningDelta, Reply, Request
from tests.lazily import lazily
from tests.llm.fakes import EAGER, Fake, answer, asking, events, fake, world
from tests.llm.shapes import framed, load, same_as_deltas

anthropic = lazily("anthropic")
SHAPES = load("anthropic")
FINISHES = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}


@asynccontextmanager
async def claude(made: Fake, url: str | None = None) -> AsyncIterator[Anthropic]:
    provider = Anthropic(world(), Endpoint("anthropic", url or made.url, "sk-test", "ANTHROPIC_API_KEY"), EAGER)
    try:
        yield provider
    finally:
        await provider.close()


@asynccontextmanager
async def official(made: Fake) -> AsyncIterator["anthropic.AsyncAnthropic"]:
    sdk = anthropic.AsyncAnthropic(base_url=made.url.removesuffix("/v1"), api_key="sk-test", max_retries=0)
    try:
        yield sdk
    finally:
        await sdk.close()


QUESTION: Any = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}


async def ours(made: Fake, request: Request) -> list[Event]:
    async with claude(made) as provider:
        return [event async for event in provider.stream(request)]


def same(reply: Reply, message: "anthropic.types.Message") -> None:
    """Our reply says what the SDK's object says."""
    content = []
    for block in message.content:
        match block.type:
            case "text":
                content.append(Text(block.text))
            case "thinking":
                content.append(Reasoning(block.thinking, signature=block.signature))
            case "redacted_thinking":
                content.append(HiddenReasoning(block.data))
            case _:
                pass
    assert list(reply.content) == content
    calls = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
    assert [(call.id, call.name, json.loads(call.arguments)) for call in reply.tool_calls] == calls
    assert reply.finish_reason == FINISHES[str(message.stop_reason)]
    usage = message.usage
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    assert (reply.usage.cached_input_tokens, reply.usage.cache_write_tokens) == (read, written)
    assert reply.usage.prompt_tokens == usage.input_tokens + (read or 0) + (written or 0)
    assert reply.usage.completion_tokens == usage.output_tokens
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + usage.output_tokens
    details = usage.output_tokens_details
    assert reply.usage.reasoning_tokens == (details.thinking_tokens if details else None)


@pytest.mark.parametrize("name", SHAPES["whole"])
async def test_whole_replies_are_read_as_the_official_sdk_reads_them(name: str):
    async with fake() as made, official(made) as sdk:
        made.will(answer(SHAPES["whole"][name]))
        message = await sdk.messages.create(**QUESTION)
        given = await ours(made, asking())
    assert len(given) == 1 and isinstance(given[0], Reply)
    same(given[0], message)


@pytest.mark.parametrize("name", SHAPES["streams"])
async def test_streams_are_read_as_the_official_sdk_reads_them(name: str):
    async with fake() as made, official(made) as sdk:
        made.will(events(*framed(*SHAPES["streams"][name])))
        async with sdk.messages.stream(**QUESTION) as stream:
            message = await stream.get_final_message()
        given = await ours(made, asking(deltas=True))
    same(same_as_deltas(given), message)


async def test_thoughts_are_streamed():
    async with fake() as made:
        made.will(events(*framed(*SHAPES["streams"]["thoughts and calls"])))
        given = await ours(made, asking(deltas=True))
    thoughts = [event for event in given if isinstance(event, ReasoningDelta)]
    assert [event.text for event in thoughts if not event.hidden] == ["Two ", "sums."]
    hidden = [part.data for part in given[-1].content if isinstance(part, HiddenReasoning)]
    assert [event.text for event in thoughts if event.hidden] == hidden != []


async def test_a_whole_reply_where_a_stream_was_asked_for():
    async with fake() as made:
        made.will(answer(SHAPES["whole"]["thoughts and calls"]))
        reply = same_as_deltas(await ours(made, asking(deltas=True)))
    assert [call.arguments for call in reply.tool_calls] == ['{"x": 1, "y": "ü"}', "{}"]


async def test_what_we_do_not_know_is_passed_over():
    start, block, *rest = SHAPES["streams"]["text"]
    strange = [
        {"type": "content_block_start", "index": 7, "content_block": {"type": "hologram", "x": 1}},
        {"type": "content_block_delta", "index": 7, "delta": {"type": "hologram_delta", "x": 1}},
        {"type": "content_block_stop", "index": 7},
        {"type": "weather", "rain": True},
    ]
    async with fake() as made:
        made.will(events(*framed(start, *strange, block, *rest)))
        reply = same_as_deltas(await ours(made, asking(deltas=True)))
    assert len(reply.content) == 1


async def test_calls_without_ids_or_with_one_id_twice_get_ids_that_follow_from_the_request():
    content = [{"type": "tool_use", "id": given, "name": "add", "input": {}} for given in ("x", "x", "")]
    async with fake() as made:
        made.will(answer({**SHAPES["whole"]["text"], "content": content}))
        first, second = [(await ours(made, asking()))[0] for _ in range(2)]
    assert isinstance(first, Reply) and first == second
    assert len({call.id for call in first.tool_calls}) == 3
    assert first.finish_reason == "tool_calls"


@pytest.mark.parametrize("ending", ["", "/v1", "/v1/", "/"])
async def test_address_and_headers(ending: str):
    async with fake() as made:
        made.will(answer(SHAPES["whole"]["text"]))
        async with claude(made, made.url.removesuffix("/v1") + ending) as provider:
            [event async for event in provider.stream(asking())]
        heard = made.heard[0]
    assert heard.path == "/v1/messages"
    assert heard.headers["x-api-key"] == "sk-test"
    assert heard.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in heard.headers


async def test_models_are_listed_page_by_page():
    async with fake() as made, claude(made) as provider:
        made.will(*map(answer, SHAPES["models"]))
        listed = await provider.models()
        assert [heard.path for heard in made.heard] == [
            "/v1/models?limit=1000",
            "/v1/models?limit=1000&after_id=claude-haiku-4-5-20251001",
        ]
        assert await provider.embeddings() == []
    assert [model.name for model in listed] == [
        "claude-3-haiku-20240307",
        "claude-haiku-4-5-20251001",
        "claude-opus-5-5",
    ]
    old, known, new = listed
    assert (old.context_window, old.max_tokens, old.vision, old.reasoning) == (200_000, 4096, True, False)
    assert (known.handle, known.provider_type) == ("anthropic/claude-haiku-4-5-20251001", "anthropic")
    assert (new.context_window, new.max_tokens) == (1_000_000, 16_384)
    assert new.tools and new.vision and new.structured_output and new.reasoning and new.streaming
    assert provider.describe("claude-haiku-4-5-20251001") == known
