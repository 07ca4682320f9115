"""Models over REST: their abilities and filters, local ones with their times, and one that stands in for another."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from letta_client.types import EmbeddingModel, Model

from kelpie.app import Kelpie
from kelpie.core.settings.settings import Settings
from kelpie.world.clock import SystemClock
from kelpie.world.http.port import Http, NetworkHttp
from kelpie.world.ids import RandomIds
from kelpie.world.processes.processes import SystemProcesses
from kelpie.world.world import World
from tests.llm.fakes import answer, fake
from tests.llm.local_fakes import local_fake, ndjson, ollama, shown
from tests.new_database import open_new_database
from tests.server.rig import client_of, make_agent

ABILITIES = ("tools", "vision", "structured_output", "reasoning", "streaming", "max_context_window")
SAID = {
    "message": {"role": "assistant", "content": "hello"},
    "done": True,
    "load_duration": 300,
    "prompt_eval_count": 4,
    "prompt_eval_duration": 100,
    "eval_count": 2,
    "eval_duration": 500,
}


@asynccontextmanager
async def served(tmp_path: Path, http: Http | None = None, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A whole Kelpie with the providers that the settings bring up."""
    world = World(
        SystemClock(),
        RandomIds(),
        random.Random(1),
        open_new_database(tmp_path / "kelpie.db", started=True),
        http or NetworkHttp(),
        SystemProcesses(),
    )
    kelpie = Kelpie(world, Settings(data_dir=str(tmp_path), port=0, **settings))
    await kelpie.start()
    try:
        async with client_of(kelpie) as client:
            yield client
    finally:
        await kelpie.stop(5.0)


async def test_every_model_is_listed_with_what_it_can_do(tmp_path: Path) -> None:
    async with local_fake() as local, fake() as remote:
        remote.will(answer({"data": [{"id": "gpt-4o"}, {"id": "o3"}]}))
        able = ["completion", "tools", "thinking"]
        ollama(
            local, qwen3__8b=shown(capabilities=able), llava=shown("llama", 4096, capabilities=["completion", "vision"])
        )
        async with served(tmp_path, ollama_base_url=local.url, openai_base_url=remote.url) as client:
            listed = (await client.get("/v1/models/")).json()

            async def handles(**query: str) -> list[str]:
                return [model["handle"] for model in (await client.get("/v1/models/", params=query)).json()]

            assert await handles(provider_name="ollama") == ["ollama/llava", "ollama/qwen3:8b"]
            assert await handles(provider_type="ollama") == ["ollama/llava", "ollama/qwen3:8b"]
            assert await handles(provider_type="openai") == ["kelpie/demo", "openai/gpt-4o", "openai/o3"]
            assert await handles(provider_category="byok") == []
            assert len(await handles(provider_category="base")) == 5
            report = (await client.get("/v1/kelpie/models")).json()
    for model in listed:
        Model.model_validate(model)
    told = {model["handle"]: tuple(model[name] for name in ABILITIES) for model in listed}
    assert told["ollama/qwen3:8b"] == (True, False, True, True, True, 40960)
    assert told["ollama/llava"] == (False, True, True, False, True, 4096)
    assert told["openai/gpt-4o"] == (True, True, True, False, True, 128_000)
    assert told["openai/o3"][3] is True
    assert [provider["name"] for provider in report["providers"]] == ["kelpie", "openai", "ollama"]
    assert "anthropic" in {each["name"] for each in report["absent"]}


async def test_a_local_model_is_pulled_for_its_agent_takes_its_settings_and_tells_its_times(tmp_path: Path) -> None:
    async with local_fake() as local:
        ollama(local)
        local.at("POST /api/pull", ndjson({"status": "success"}))
        local.at("POST /api/chat", SAID)
        async with served(tmp_path, ollama_base_url=local.url) as client:
            refused = await client.post("/v1/agents/", json={"name": "one", "model": "ollama/new:1b"})
            assert refused.status_code == 404 and "kelpie models pull ollama/new:1b" in refused.json()["detail"]
        async with served(tmp_path, ollama_base_url=local.url, pull_missing_models=True) as client:
            await client.get("/v1/models/")
            ollama(local, new__1b=shown(window=20_000))
            wanted = {"provider_type": "openai", "num_gpu": 1, "num_thread": 2, "num_ctx": 4096, "keep_alive": "1h"}
            agent = await make_agent(client, model="ollama/new:1b", model_settings=wanted)
            assert agent["llm_config"]["context_window"] == 20_000
            said = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
            assert said.json()["messages"][-1]["content"] == "hello"
            (step,) = (await client.get("/v1/steps/", params={"agent_id": agent["id"]})).json()
            times = (await client.get(f"/v1/steps/{step['id']}/metrics")).json()
        (asked,) = local.asked("POST /api/chat")
    assert (times["model_load_ns"], times["model_inference_ns"]) == (300, 600)
    assert step["total_tokens"] == 6 and step["model_handle"] == "ollama/new:1b"
    options = {name: asked.body["options"][name] for name in ("num_gpu", "num_thread", "num_ctx")}
    assert options == {"num_gpu": 1, "num_thread": 2, "num_ctx": 4096} and asked.body["keep_alive"] == "1h"


async def test_the_step_names_the_model_that_stood_in(tmp_path: Path) -> None:
    async with local_fake() as local, fake() as remote:
        remote.will(answer({"data": [{"id": "gpt-4o"}]}), answer({"error": {"message": "no"}}, 500))
        ollama(local, spare=shown()).at("POST /api/chat", SAID)
        settings = {"model_fallbacks": ("ollama/spare",), "model_attempts": 1}
        async with served(tmp_path, ollama_base_url=local.url, openai_base_url=remote.url, **settings) as client:
            agent = await make_agent(client, model="openai/gpt-4o")
            said = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
            assert said.json()["messages"][-1]["content"] == "hello"
            (step,) = (await client.get("/v1/steps/", params={"agent_id": agent["id"]})).json()
            alone = {"provider_type": "openai", "fallbacks": []}
            await client.patch(f"/v1/agents/{agent['id']}", json={"model_settings": alone})
            refused = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
    assert (step["provider_name"], step["model"], step["model_handle"]) == ("ollama", "spare", "ollama/spare")
    assert refused.status_code == 500 and refused.json()["error"]["type"] == "llm_error"


async def test_a_limit_is_a_429_that_names_it(tmp_path: Path) -> None:
    async with local_fake() as local:
        ollama(local, m=shown()).at("POST /api/chat", SAID)
        settings = {"provider_limits": ("ollama: requests=1",), "provider_wait_s": 1.0}
        async with served(tmp_path, ollama_base_url=local.url, **settings) as client:
            agents = [await make_agent(client, name=name, model="ollama/m") for name in ("one", "two")]
            first, second = [
                await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"}) for agent in agents
            ]
            messages = (await client.get(f"/v1/agents/{agents[1]['id']}/messages")).json()
    assert first.status_code == 200 and second.status_code == 429
    assert "The limit of ollama is reached: 1 requests a minute" in second.json()["error"]["message"]
    assert 50 <= int(second.headers["retry-after"]) <= 62
    assert [message["message_type"] for message in messages] == ["system_message"]


async def test_the_money_of_a_day_outlives_a_restart(tmp_path: Path) -> None:
    async with local_fake() as local:
        ollama(local, m=shown()).at("POST /api/chat", {**SAID, "prompt_eval_count": 1_000_000})
        settings: dict[str, Any] = {
            "ollama_base_url": local.url,
            "provider_limits": ("ollama: dollars=1",),
            "model_prices": ("ollama/*=1/1",),
        }
        async with served(tmp_path, **settings) as client:
            agent = await make_agent(client, model="ollama/m")
            path = f"/v1/agents/{agent['id']}/messages"
            assert (await client.post(path, json={"input": "hi"})).status_code == 200
        async with served(tmp_path, **settings) as client:
            refused = await client.post(path, json={"input": "hi"})
    assert refused.status_code == 429 and "1 dollars a day" in refused.json()["error"]["message"]


async def test_money_spent_before_a_restart_still_counts(tmp_path: Path) -> None:
    async with local_fake() as local:
        ollama(local, m=shown()).at("POST /api/chat", SAID)
        settings = {
            "ollama_base_url": local.url,
            "provider_limits": ("ollama: dollars=1",),
            "model_prices": ("ollama/*=500000/500000",),  # six tokens are three dollars
            "provider_wait_s": 1.0,
        }
        async with served(tmp_path, **settings) as client:
            agent = await make_agent(client, model="ollama/m")
            first = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
        async with served(tmp_path, **settings) as client:
            second = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
    assert first.status_code == 200 and second.status_code == 429, (first.text, second.text)
    assert "The limit of ollama is reached: 1 dollars a day" in second.json()["error"]["message"]


async def test_embedding_models_are_listed_as_clients_know_them(tmp_path: Path) -> None:
    async with served(tmp_path, openai_api_key="k", openai_base_url="http://127.0.0.1:9/v1") as client:
        listed = (await client.get("/v1/models/embedding")).json()
    assert [model["handle"] for model in listed] == [
        "openai/text-embedding-3-large", "openai/text-embedding-3-small", "openai/text-embedding-ada-002"
    ]  # fmt: skip
    assert listed[1] == {
        "handle": "openai/text-embedding-3-small",
        "name": "text-embedding-3-small",
        "display_name": "text-embedding-3-small",
        "provider_type": "openai",
        "provider_name": "openai",
        "model_type": "embedding",
        "embedding_endpoint_type": "openai",
        "embedding_endpoint": "http://127.0.0.1:9/v1",
        "embedding_model": "text-embedding-3-small",
        "embedding_dim": 1536,
        "embedding_chunk_size": 300,
        "batch_size": 32,
        "azure_endpoint": None,
        "azure_version": None,
        "azure_deployment": None,
    }
    for model in listed:
        EmbeddingModel.model_validate(model)
