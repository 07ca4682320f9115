"""Local models over REST: names without a tag, servers that Kelpie finds by itself, embedding models, defaults of the
server, and a provider that cannot be reached."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.llm.fakes import answer, fake
from tests.llm.local_fakes import MovedPorts, embedding, local_fake, ollama, shown
from tests.server.rig import make_agent
from tests.server.test_models_api import SAID, served

EMBEDS = {
    "model_info": {"general.architecture": "bert", "bert.embedding_length": 3},
    "capabilities": ["embedding"],
}
DEAD = "http://127.0.0.1:9"  # the discard port: nobody listens
CHAT = {"choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}], "usage": {}}


async def test_a_name_without_a_tag_is_the_latest_everywhere(tmp_path: Path) -> None:
    async with local_fake() as local:
        ollama(local, mistral__latest=shown(), qwen3__8b=shown(), nomic__latest=shown(**EMBEDS))
        local.at("POST /api/chat", SAID).at("DELETE /api/delete", {}).at("POST /v1/embeddings", {})
        async with served(tmp_path, ollama_base_url=local.url) as client:
            agent = await make_agent(client, model="ollama/mistral", embedding="ollama/nomic")
            assert agent["model"] == agent["llm_config"]["handle"] == "ollama/mistral:latest"
            assert agent["embedding"] == "ollama/nomic:latest"
            await make_agent(client, name="two", model="ollama/mistral:latest")
            talk = await client.post(f"/v1/conversations/?agent_id={agent['id']}", json={"model": "ollama/mistral"})
            assert talk.json()["model"] == "ollama/mistral:latest"
            archive = await client.post("/v1/archives/", json={"name": "a", "embedding": "ollama/nomic"})
            assert archive.json()["embedding_config"]["handle"] == "ollama/nomic:latest"
            checked = await client.post("/v1/kelpie/models/check", json={"handle": "ollama/mistral"})
            assert checked.json()["ok"] and checked.json()["answer"] == "hello"
            missing = await client.post("/v1/agents/", json={"name": "x", "model": "ollama/qwen3"})
            assert missing.status_code == 404 and "`kelpie models pull ollama/qwen3`" in missing.json()["detail"]
            await client.post("/v1/kelpie/models/remove", json={"handle": "ollama/mistral"})
    assert [asked.body["model"] for asked in local.asked("POST /api/chat")] == ["mistral:latest"]
    assert local.asked("DELETE /api/delete")[0].body == {"model": "mistral:latest"}


async def test_an_embedding_model_is_said_to_be_one(tmp_path: Path) -> None:
    async with local_fake() as local:
        ollama(local, **{"nomic-embed-text__latest": shown(**EMBEDS)})
        async with served(tmp_path, ollama_base_url=local.url, openai_api_key="k", openai_base_url=DEAD) as client:
            for handle in ("ollama/nomic-embed-text", "ollama/nomic-embed-text:latest"):
                refused = await client.post("/v1/kelpie/models/check", json={"handle": handle})
                assert refused.status_code == 400
                assert f"{handle} is an embedding model and cannot chat" in refused.json()["detail"]


async def test_an_unreachable_provider_is_a_503_with_one_line_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(tmp_path, openai_api_key="k", openai_base_url=f"{DEAD}/v1", model_listing_s=5.0) as client:
        capsys.readouterr()
        refused = await client.post("/v1/agents/", json={"name": "a", "model": "openai/gpt-4o"})
        logged = capsys.readouterr().err
        listed = await client.get("/v1/models/")
        default = await client.post("/v1/agents/", json={"name": "b"})
        demo = await make_agent(client, model="kelpie/demo")
    assert refused.status_code == 503
    error = refused.json()["error"]
    assert error["type"] == "llm_error" and error["message"] == f"Cannot reach openai at {DEAD}/v1/models."
    assert error["detail"] == "connection refused" and "OPENAI_BASE_URL" in error["hint"]
    (line,) = [json.loads(line) for line in logged.splitlines()]
    assert (line["code"], line["level"], line["detail"]) == ("provider_failed", "warning", "connection refused")
    assert "OPENAI_BASE_URL" in line["hint"] and "exception" not in line
    assert [model["handle"] for model in listed.json()] == ["kelpie/demo"]
    assert listed.headers["X-Kelpie-Failed-Providers"] == "openai"
    assert default.status_code == 503 and "kelpie/demo" in default.json()["error"]["hint"]
    assert demo["model"] == "kelpie/demo"


@pytest.mark.parametrize("kind", ["ollama", "llamacpp"])
async def test_the_server_samples_as_it_is_set_up_unless_the_agent_asks(tmp_path: Path, kind: str) -> None:
    async with local_fake() as local:
        if kind == "ollama":
            ollama(local, m__latest=shown()).at("POST /api/chat", SAID)
            route = "POST /api/chat"
        else:
            route = "POST /v1/chat/completions"
            local.at("GET /props", {"default_generation_settings": {"n_ctx": 9000}}).at(route, CHAT)
            local.at("GET /v1/models", {"data": [{"id": "/home/me/m.gguf"}]})
        settings: dict[str, Any] = {f"{kind}_base_url": local.url}
        async with served(tmp_path, **settings) as client:
            plain = await make_agent(client, model=f"{kind}/m")
            also = await make_agent(
                client, name="also", model=f"{kind}/m", model_settings={"provider_type": "openai", "seed": 4}
            )
            asks = await make_agent(
                client,
                name="asks",
                model=f"{kind}/m",
                model_settings={"provider_type": "openai", "temperature": 0.2, "max_output_tokens": 50, "top_p": 0.5},
            )
            assert plain["model"] == ("ollama/m:latest" if kind == "ollama" else "llamacpp/m")
            assert plain["model_settings"]["temperature"] is None and plain["llm_config"]["temperature"] is None
            for agent in (plain, also, asks):
                told = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
                assert told.status_code == 200, told.text
        sent: list[dict[str, Any]] = [asked.body | asked.body.get("options", {}) for asked in local.asked(route)]
    for each in sent[:2]:
        assert not {"temperature", "top_p", "max_tokens", "max_completion_tokens", "num_predict"} & each.keys()
    assert (sent[2]["temperature"], sent[2]["top_p"]) == (0.2, 0.5)
    assert sent[2].get("max_tokens", sent[2].get("num_predict")) == 50
    if kind == "llamacpp":
        assert sent[0]["model"] == "/home/me/m.gguf", "the server's own id is sent"


async def test_servers_on_their_default_ports_are_found_and_used(tmp_path: Path) -> None:
    async with local_fake() as first, local_fake() as second, local_fake() as other:
        ollama(first, qwen3__8b=shown(), llama3__latest=shown()).at("POST /api/chat", SAID)
        second.at("GET /props", {"default_generation_settings": {"n_ctx": 9000}})
        second.at("GET /v1/models", {"data": [{"id": "small.gguf"}]})
        other.at("GET /", {"hello": "world"})
        ports = MovedPorts({11434: first.url, 8000: second.url, 8080: other.url})
        async with served(tmp_path, ports, model_listing_retry_s=60.0) as client:
            assert ports.asked == [], "the start of a server does not wait for a search"
            listed = [model["handle"] for model in (await client.get("/v1/models/")).json()]
            agent = await make_agent(client)
            said = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
            report = (await client.get("/v1/kelpie/models")).json()
        assert {heard.method for heard in (*second.heard, *other.heard)} == {"GET"}
        async with served(tmp_path, ports) as client:  # it is found again before the first message of the agent
            again = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
        async with served(tmp_path, ports, openai_base_url=other.url, default_model="kelpie/demo") as client:
            beside = (await client.get("/v1/kelpie/models")).json()
        ports.asked.clear()
        async with served(tmp_path, ports, discover_models=False) as client:
            off = [model["handle"] for model in (await client.get("/v1/models/")).json()]
    assert listed == ["kelpie/demo", "ollama/llama3:latest", "ollama/qwen3:8b", "llamacpp/small"]
    assert agent["model"] == "ollama/llama3:latest", "the first of the documented order"
    assert said.json()["messages"][-1]["content"] == again.json()["messages"][-1]["content"] == "hello"
    found = {each["name"]: (each["found"], each["setting"]) for each in report["providers"]}
    assert found["ollama"] == (True, "OLLAMA_BASE_URL=http://127.0.0.1:11434")
    assert found["llamacpp"] == (True, "LLAMACPP_BASE_URL=http://127.0.0.1:8000") and found["kelpie"] == (False, None)
    assert [each["setting"] for each in beside["nearby"]] == [
        each[1] for name, each in found.items() if name != "kelpie"
    ]
    assert "ollama" not in {each["name"] for each in beside["providers"]}
    assert off == ["kelpie/demo"] and ports.asked == []


async def test_search_works_with_an_embedding_model_of_a_local_server(tmp_path: Path) -> None:
    async with local_fake() as local:
        entries = [{"id": "chat", "type": "llm"}, {"id": "text-embedding-nomic", "type": "embeddings"}]
        local.at("GET /api/v0/models", {"data": entries})
        embedding(local, {"cat": [1.0, 0.0], "engine": [0.0, 1.0], "": [0.5, 0.5]})
        async with served(tmp_path, lmstudio_base_url=local.url) as client:
            listed = (await client.get("/v1/models/embedding")).json()
            handle = "lmstudio/text-embedding-nomic"
            assert [(each["handle"], each["embedding_dim"]) for each in listed] == [(handle, 2)]
            agent = await make_agent(client, model="kelpie/demo", embedding=handle)
            for text in ("a cat on a mat", "an engine of steel"):
                await client.post(f"/v1/agents/{agent['id']}/archival-memory", json={"text": text})
            params = {"query": "my cat", "search_mode": "vector", "top_k": 1}
            hits = (await client.get(f"/v1/agents/{agent['id']}/archival-memory/search", params=params)).json()
    assert [hit["content"] for hit in hits["results"]] == ["a cat on a mat"]
    assert {asked.body["model"] for asked in local.asked("POST /v1/embeddings")} == {"text-embedding-nomic"}


async def test_list_prices_hold_only_at_the_maker(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 1000, "total_tokens": 2000}
    async with fake() as remote:
        remote.will(answer({"data": [{"id": "gpt-4o"}]}), answer(CHAT | {"usage": usage}))
        async with served(tmp_path, openai_base_url=remote.url) as client:
            agent = await make_agent(client)
            await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
            spent = (await client.get(f"/v1/kelpie/agents/{agent['id']}/spending")).json()
    assert agent["model"] == "openai/gpt-4o", "the default is a real model once a provider is set up"
    assert "2000" in str(spent) and "0.0125" not in str(spent), spent
