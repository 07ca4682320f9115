"""Azure: the address, the key and the names of deployments, beside the official SDK's own client for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.openai.azure import Azure
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import Reply, TextDelta
from tests.llm.fakes import DONE, EAGER, Fake, answer, asking, chunk, completion, events, fake, tool, world

VERSION = "2024-10-21"
DEPLOYMENTS = {
    "object": "list",
    "data": [
        {
            "object": "deployment",
            "id": "our chat",
            "model": "gpt-4o",
            "status": "succeeded",
            "owner": "organization-owner",
        },
        {
            "object": "deployment",
            "id": "thinker",
            "model": "o4-mini",
            "status": "succeeded",
            "owner": "organization-owner",
        },
        {"object": "deployment", "id": "vectors", "model": "text-embedding-3-small", "status": "succeeded"},
        {"object": "deployment", "id": "later", "model": "gpt-4o", "status": "creating"},
    ],
}


@asynccontextmanager
async def azure(made: Fake, version: str | None = VERSION, ending: str = "", **fields: Any) -> AsyncIterator[Azure]:
    url = made.url.removesuffix("/v1") + ending
    endpoint = Endpoint("azure", url, "az-key", "AZURE_API_KEY", "AZURE_BASE_URL", api_version=version, **fields)
    provider = Azure(world(), endpoint, EAGER)
    try:
        yield provider
    finally:
        await provider.close()


async def test_the_call_is_the_one_that_the_official_client_makes():
    async with fake() as made, azure(made) as provider:
        made.will(answer(completion({"content": "Hello."})))
        sdk = openai.AsyncAzureOpenAI(
            azure_endpoint=made.url.removesuffix("/v1"), api_key="az-key", api_version=VERSION, max_retries=0
        )
        await sdk.chat.completions.create(model="our-chat", messages=[{"role": "user", "content": "hi"}])
        await sdk.close()
        [reply] = [event async for event in provider.stream(asking(model="our-chat"))]
        theirs, ours = made.heard
    assert isinstance(reply, Reply)
    assert (ours.method, ours.path) == (theirs.method, theirs.path)
    assert ours.headers["api-key"] == theirs.headers["api-key"] == "az-key"
    assert "authorization" not in ours.headers
    assert ours.body["model"] == theirs.body["model"] == "our-chat"


@pytest.mark.parametrize("ending", ["", "/", "/openai", "/openai/v1/"])
async def test_without_a_version_it_is_the_undated_interface(ending: str):
    async with fake() as made, azure(made, None, ending) as provider:
        made.will(answer(completion({"content": "Hello."})))
        [event async for event in provider.stream(asking(model="our chat"))]
        assert made.heard[0].path == "/openai/v1/chat/completions"
        assert made.heard[0].body["model"] == "our chat"


async def test_deployments_are_listed_by_their_names_with_what_their_models_can_do():
    async with fake() as made, azure(made) as provider:
        made.will(answer(DEPLOYMENTS))
        chat, thinker = await provider.models()
        assert made.heard[0].path == "/openai/deployments?api-version=2023-03-15-preview"
        assert (chat.handle, chat.provider_type, chat.context_window) == ("azure/our chat", "azure", 128_000)
        assert chat.vision and not chat.reasoning
        assert (thinker.name, thinker.reasoning, thinker.context_window) == ("thinker", True, 200_000)
        assert provider.describe("thinker") == thinker
        assert [(one.handle, one.dimensions) for one in await provider.embeddings()] == [("azure/vectors", 1536)]
        made.will(answer(completion({"content": "Hello."})))
        [event async for event in provider.stream(asking(model="thinker", max_tokens=9, tools=[tool("add")]))]
        sent = made.heard[1]
    assert sent.path == f"/openai/deployments/thinker/chat/completions?api-version={VERSION}"
    assert sent.body["model"] == "thinker"
    assert sent.body["max_completion_tokens"] == 9 and "parallel_tool_calls" not in sent.body


async def test_deployments_can_be_named_where_they_cannot_be_listed():
    async with fake() as made, azure(made, models=("mine=gpt-5", "gpt-4o")) as provider:
        listed = await provider.models()
        assert made.heard == []
    assert [(model.name, model.reasoning) for model in listed] == [("gpt-4o", False), ("mine", True)]


async def test_a_stream_begins_with_a_chunk_about_filters():
    first = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [{}]}
    async with fake() as made, azure(made) as provider:
        made.will(events(first, chunk({"content": "Hello."}), chunk({}, "stop"), DONE))
        given = [event async for event in provider.stream(asking(model="our chat", deltas=True))]
        assert made.heard[0].path.startswith("/openai/deployments/our%20chat/")
    assert given[0] == TextDelta("Hello.")


@pytest.mark.parametrize(
    ("status", "code", "kind", "hint"),
    [
        (401, "401", ModelFault.authentication, "AZURE_API_KEY"),
        (404, "DeploymentNotFound", ModelFault.bad_request, "AZURE_BASE_URL"),
        (400, "content_filter", ModelFault.bad_request, "settings"),
        (429, "429", ModelFault.rate_limit, "limit"),
    ],
)
async def test_azures_errors(status: int, code: str, kind: ModelFault, hint: str):
    async with fake() as made, azure(made) as provider:
        made.will(answer({"error": {"code": code, "message": "Azure's own words."}}, status))
        with pytest.raises(ModelError) as caught:
            [event async for event in provider.stream(asking(model="our chat"))]
    assert (caught.value.kind, caught.value.detail) == (kind, "Azure's own words.")
    assert caught.value.hint and hint in caught.value.hint
    assert "az-key" not in f"{caught.value} {caught.value.hint}"
