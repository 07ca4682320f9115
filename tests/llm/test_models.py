"""Which models there are and who answers to a handle."""

import asyncio
from typing import Any

import pytest

from kelpie.core.errors import ConfigurationError, InvalidInput, ModelError, ModelFault, NotFound
from kelpie.core.settings.settings import Settings
from kelpie.llm.catalog.known_models import chats, context_window, max_output_tokens
from kelpie.llm.demo.provider import DemoProvider
from kelpie.llm.provider.interface import ModelInfo, Reply
from kelpie.llm.routing.handles import HANDLES_TOLD_MAX
from kelpie.llm.routing.model_listing import LISTING_FRESH_S, LISTING_RETRY_S
from kelpie.llm.routing.models import Models
from tests.llm.fakes import Fake, answer, asking, fake, world
from tests.llm.test_retry import in_virtual_time

LISTED = {
    "data": [
        {"id": name, "object": "model"}
        for name in ("gpt-4o-mini", "gpt-4.1", "o3", "text-embedding-3-small", "whisper-1", "dall-e-3", "tts-1")
    ]
}


def models_of(made: Fake) -> Models:
    return Models(world(), Settings(openai_base_url=made.url, openai_api_key="sk-test"))


async def test_without_a_key_there_is_the_demo_alone():
    models = Models(world(), Settings())
    assert [model.handle for model in await models.all()] == ["kelpie/demo"]
    assert await models.embeddings() == []
    assert (await models.resolve("kelpie/demo")).context_window > 0
    speaker, name = models.provider("kelpie/demo")
    events = [event async for event in speaker.stream(asking(model=name))]
    assert name == "demo" and isinstance(events[-1], Reply) and events[-1].answered_by is None


async def test_chat_models_are_listed_in_order_and_others_are_not():
    async with fake() as made:
        made.will(answer(LISTED))
        models = models_of(made)
        listed = await models.all()
        await models.close()
    assert [model.handle for model in listed] == ["kelpie/demo", "openai/gpt-4.1", "openai/gpt-4o-mini", "openai/o3"]
    expected = ModelInfo(
        "openai/gpt-4.1",
        "gpt-4.1",
        "openai",
        "openai",
        1_047_576,
        made.url,
        16_384,
        vision=True,
        structured_output=True,
    )
    assert listed[1] == expected
    assert (made.heard[0].method, made.heard[0].path) == ("GET", "/v1/models")
    assert made.heard[0].headers["authorization"] == "Bearer sk-test"


async def test_a_listing_is_asked_for_once_also_by_many_at_a_time():
    async with fake() as made:
        made.will(answer(LISTED))
        models = models_of(made)
        found = await asyncio.gather(*(models.resolve("openai/gpt-4.1") for _ in range(20)))
        await models.all()
        await models.close()
        assert len(made.heard) == 1
    assert {model.name for model in found} == {"gpt-4.1"}


async def test_embeddings_and_their_sizes():
    async with fake() as made:
        models = models_of(made)
        sizes = {info.handle: info.dimensions for info in await models.embeddings()}
        small = await models.resolve_embedding("openai/text-embedding-3-small")
        with pytest.raises(NotFound, match="Handle openai/none not found, must be one of"):
            await models.resolve_embedding("openai/none")
        await models.close()
        assert made.heard == []
    assert sizes == {
        "openai/text-embedding-3-large": 3072,
        "openai/text-embedding-3-small": 1536,
        "openai/text-embedding-ada-002": 1536,
    }
    assert (small.name, small.dimensions, small.endpoint) == ("text-embedding-3-small", 1536, made.url)


async def test_unknown_handles():
    async with fake() as made:
        made.will(answer(LISTED))
        models = models_of(made)
        for handle in ("openai/nope", "nope/x"):
            with pytest.raises(NotFound) as caught:
                await models.resolve(handle)
            known = "kelpie/demo, openai/gpt-4.1, openai/gpt-4o-mini, openai/o3"
            add = ". There is no provider 'nope'; add it with POST /v1/providers, or choose another model"
            remedy = add if handle == "nope/x" else ""
            assert str(caught.value) == f"Handle {handle} not found, must be one of [{known}]{remedy}"
            assert (caught.value.what, caught.value.key) == ("Handle", handle)
        with pytest.raises(NotFound):
            models.provider("nope/x")
        await models.close()


async def test_a_handle_of_a_provider_that_is_not_set_up_tells_how():
    with pytest.raises(NotFound, match="OPENAI_API_KEY"):
        await Models(world(), Settings()).resolve("openai/gpt-4o")


@pytest.mark.parametrize("handle", ["gpt-4o", "", "/gpt-4o", "openai/"])
async def test_a_handle_has_two_parts(handle: str):
    models = Models(world(), Settings())
    with pytest.raises(InvalidInput) as caught:
        await models.resolve(handle)
    assert caught.value.field == "model"
    with pytest.raises(InvalidInput):
        models.provider(handle)
    with pytest.raises(InvalidInput) as caught:
        await models.resolve_embedding(handle)
    assert caught.value.field == "embedding"


async def test_only_the_first_slash_splits():
    async with fake() as made:
        made.will(answer([{"id": "meta/llama-3", "context_length": 8192}]))  # a list without an envelope
        models = models_of(made)
        found = await models.resolve("openai/meta/llama-3")
        _, name = models.provider("openai/meta/llama-3")
        await models.close()
    assert (found.name, name, found.context_window) == ("meta/llama-3", "meta/llama-3", 8192)


async def test_a_provider_that_fails_hides_only_its_own_models():
    async with fake() as made:
        made.will(answer({"error": {"message": "Incorrect API key"}}, 401))
        models = models_of(made)
        assert [model.handle for model in await models.all()] == ["kelpie/demo"]
        assert (await models.resolve("kelpie/demo")).name == "demo"
        with pytest.raises(ModelError) as caught:
            await models.resolve("openai/gpt-4o")
        await models.close()
        assert len(made.heard) == 1
    assert (caught.value.kind, caught.value.detail) == (ModelFault.authentication, "Incorrect API key")


@pytest.mark.parametrize("body", [{"data": "?"}, {}, b"<html>"])
async def test_a_listing_that_is_none(body: Any):
    async with fake() as made:
        made.will(answer(body))
        models = models_of(made)
        with pytest.raises(ModelError) as caught:
            await models.resolve("openai/gpt-4o")
        await models.close()
    assert caught.value.kind is ModelFault.malformed


def test_wrong_settings_stop_the_start():
    with pytest.raises(ConfigurationError, match="OPENAI_BASE_URL"):
        Models(world(), Settings(openai_base_url="example.com/v1"))


class _Fickle(DemoProvider):
    """A provider whose list changes, or fails, with every call."""

    name = "fickle"

    def __init__(self, *listings: tuple[str, ...] | ModelError) -> None:
        super().__init__()
        self.listings = list(listings)

    async def models(self) -> list[ModelInfo]:
        listing = self.listings.pop(0)
        if isinstance(listing, ModelError):
            raise listing
        return [ModelInfo(f"fickle/{name}", name, "fickle", "openai", 1, "") for name in listing]


def test_listings_are_kept_for_a_while():
    broken = ModelError(ModelFault.connection, "gone")

    async def main() -> None:
        provider = _Fickle(("a",), broken, ("a", "b"), ("c",))
        models = Models(world(), Settings(), [provider])
        assert (await models.resolve("fickle/a")).name == "a"
        await asyncio.sleep(LISTING_FRESH_S - 1)
        assert (await models.resolve("fickle/a")).name == "a"
        assert len(provider.listings) == 3
        await asyncio.sleep(2)
        assert (await models.resolve("fickle/a")).name == "a"  # the old one serves while the new one fails
        assert len(provider.listings) == 2
        await asyncio.sleep(LISTING_RETRY_S + 1)
        assert (await models.resolve("fickle/b")).name == "b"
        with pytest.raises(NotFound):
            await models.resolve("fickle/c")
        await asyncio.sleep(LISTING_RETRY_S + 1)
        assert (await models.resolve("fickle/c")).name == "c"  # one that is missing is looked for again

    in_virtual_time(main)


async def test_few_of_many_handles_are_told():
    models = Models(world(), Settings(), [_Fickle(tuple(f"m{number}" for number in range(500)))])
    with pytest.raises(NotFound) as caught:
        await models.resolve("fickle/none")
    assert str(caught.value).count("fickle/m") == HANDLES_TOLD_MAX
    assert str(caught.value).endswith(", ...]")


@pytest.mark.parametrize(
    "name",
    [
        "gpt-4o-realtime-preview",
        "gpt-4o-audio-preview",
        "gpt-4o-mini-tts",
        "gpt-4o-transcribe",
        "gpt-image-1",
        "omni-moderation-latest",
        "davinci-002",
        "gpt-3.5-turbo-instruct",
        "o1-pro-2025-03-19",
        "o3-deep-research",
        "gpt-5-codex",
        "nomic-embed-text",
        "sora-2",
    ],
)
def test_models_that_do_not_chat(name: str):
    assert not chats(name)


@pytest.mark.parametrize(
    ("name", "window", "reply"),
    [
        ("gpt-4.1-mini-2025-04-14", 1_047_576, 16_384),
        ("gpt-4o-mini", 128_000, 16_384),
        ("gpt-4", 8_192, 8_192),
        ("gpt-4-turbo-2024-04-09", 128_000, 4_096),
        ("gpt-5-mini", 272_000, 16_384),
        ("gpt-5-chat-latest", 128_000, 16_384),
        ("o1-mini", 128_000, 16_384),
        ("o4-mini", 200_000, 16_384),
        ("google/gemini-2.5-pro", 1_048_576, 16_384),
        ("google/gemma-2-9b", None, None),
        ("Llama-3.1-8B-Instruct", None, None),
    ],
)
def test_what_is_known_by_name(name: str, window: int | None, reply: int | None):
    assert chats(name)
    assert (context_window(name, {}), max_output_tokens(name)) == (window, reply)
    assert context_window(name, {"max_model_len": 4096}) == 4096
