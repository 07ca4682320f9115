"""Values that Letta's clients read or send: vectors of passages, the conversation in the prompt, names, old handles,
and settings of a model that are shown as they are sent."""

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client.types import Passage

from kelpie.llm.openai.strict_schemas import closed
from kelpie.llm.provider.interface import EmbeddingInfo
from tests.llm.fakes import answer, completion, fake
from tests.server.rig import Puppet, make_agent
from tests.server.test_models_api import served

VALUES = (0.5, -0.25, 0.125, 0.0, 0.0, 0.0, 0.0, 0.5)


def embeds(puppet: Puppet) -> None:
    """Lets the provider embed: every text has the same vector."""

    async def embed(info: EmbeddingInfo, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        return [struct.pack("<8f", *VALUES) for _ in texts]

    puppet.embed = embed  # type: ignore[attr-defined]


async def test_passages_have_their_vector_wherever_they_are_shown(client: httpx.AsyncClient, puppet: Puppet) -> None:
    embeds(puppet)
    archive = (await client.post("/v1/archives/", json={"name": "notes", "embedding": "fake/embed"})).json()
    agent = await make_agent(client)
    attached = await client.patch(f"/v1/agents/{agent['id']}/archives/attach/{archive['id']}")
    assert attached.status_code in (200, 204), attached.text
    path, own = f"/v1/archives/{archive['id']}/passages", f"/v1/agents/{agent['id']}/archival-memory"
    one = (await client.post(path, json={"text": "tea"})).json()
    many = (await client.post(f"{path}/batch", json={"passages": [{"text": "milk"}, {"text": "rum"}]})).json()
    (mine,) = (await client.post(own, json={"text": "ale"})).json()
    listed = (await client.get(own)).json()
    found = (await client.post("/v1/passages/search", json={"query": "tea", "agent_id": agent["id"]})).json()
    shown = [one, *many, mine, *listed, *(each["passage"] for each in found)]
    assert len(listed) == 4 and found
    length = math.sqrt(sum(value * value for value in VALUES))
    for passage in shown:
        Passage.model_validate(passage)
        assert passage["embedding"] == pytest.approx([value / length for value in VALUES], abs=1e-6)


async def test_a_passage_without_a_vector_has_none(client: httpx.AsyncClient) -> None:
    archive = (await client.post("/v1/archives/", json={"name": "notes"})).json()
    made = (await client.post(f"/v1/archives/{archive['id']}/passages", json={"text": "tea"})).json()
    assert made["embedding"] is None


async def test_the_prompt_names_the_conversation(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make_agent(client)
    thread = (await client.post("/v1/conversations/", params={"agent_id": agent["id"]}, json={})).json()["id"]
    await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
    await client.post(f"/v1/conversations/{thread}/messages", json={"input": "hi", "streaming": False})
    context = (await client.get(f"/v1/agents/{agent['id']}/context")).json()
    own, other = (request.system for request in puppet.asked)
    head = f"<memory_metadata>\n- AGENT_ID: {agent['id']}\n- CONVERSATION_ID: "
    assert f"{head}default\n" in own and "CONVERSATION_ID: default" in str(context)
    assert f"{head}{thread}\n" in other
    (stored, *_) = (await client.get(f"/v1/agents/{agent['id']}/messages", params={"order": "asc"})).json()
    assert f"{head}default\n" in stored["content"]


@pytest.mark.parametrize("name", ["v1.2 (beta)", 'a/b: "c", d', "Åsa & 茶 👩\u200d👧 #1", "_'-"])
async def test_every_printable_name_is_kept(client: httpx.AsyncClient, name: str) -> None:
    agent = await make_agent(client, name=name)
    renamed = (await client.patch(f"/v1/agents/{agent['id']}", json={"name": f"{name}!"})).json()
    assert (agent["name"], renamed["name"]) == (name, f"{name}!")
    assert [each["id"] for each in (await client.get("/v1/agents/", params={"name": f"{name}!"})).json()] == [
        agent["id"]
    ]


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "over\u202eride", "x" * 1001])
async def test_a_name_that_cannot_be_shown_is_refused(client: httpx.AsyncClient, name: str) -> None:
    agent = await make_agent(client)
    for answered in (
        await client.post("/v1/agents/", json={"name": name}),
        await client.patch(f"/v1/agents/{agent['id']}", json={"name": name}),
    ):
        assert answered.status_code == 400 and answered.json()["detail"].startswith("name: ")


async def test_the_model_of_old_examples_is_the_default_one(client: httpx.AsyncClient, puppet: Puppet) -> None:
    free = "letta/letta-free"
    agent = await make_agent(client, model=free)
    assert agent["model"] == agent["llm_config"]["handle"] == "fake/model"
    other = await make_agent(client, name="two", model=None, llm_config={"model": "letta-free", "handle": free})
    changed = (await client.patch(f"/v1/agents/{other['id']}", json={"model": free})).json()
    assert other["model"] == changed["model"] == "fake/model"
    sent = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi", "override_model": free})
    assert sent.status_code == 200 and puppet.asked[-1].model == "model"
    unknown = await client.post("/v1/agents/", json={"model": "letta/another"})
    assert unknown.status_code == 404


async def test_the_embedding_model_of_old_examples_is_the_default_one(tmp_path: Path) -> None:
    async with fake() as remote:
        settings = {"openai_base_url": remote.url, "default_embedding": "openai/text-embedding-3-small"}
        async with served(tmp_path, **settings) as client:
            remote.will(answer({"data": [{"id": "gpt-4o"}]}))
            agent = await make_agent(client, model="openai/gpt-4o", embedding="letta/letta-free")
            old = {"embedding_model": "letta-free", "embedding_endpoint_type": "letta", "handle": "letta/letta-free"}
            another = await make_agent(client, name="two", model="openai/gpt-4o", embedding_config=old)
            archive = (await client.post("/v1/archives/", json={"name": "n", "embedding": "letta/letta-free"})).json()
    for shown in (agent, another, archive):
        assert shown["embedding_config"]["handle"] == "openai/text-embedding-3-small"
        assert shown["embedding_config"]["embedding_dim"] == 1536


async def test_lettas_name_for_openai_behind_another_address_is_openai(tmp_path: Path) -> None:
    async with fake() as remote, served(tmp_path, openai_base_url=remote.url) as client:
        remote.will(answer({"data": [{"id": "gpt-4o"}]}))
        embedding = "openai-proxy/text-embedding-3-small"
        agent = await make_agent(client, model="openai-proxy/gpt-4o", embedding=embedding)
        assert (agent["model"], agent["embedding"]) == ("openai/gpt-4o", "openai/text-embedding-3-small")
        file = {
            "agents": [{"id": "agent-0", "name": "a", "llm_config": {"handle": "openai-proxy/gpt-4o", "model": "x"}}]
        }
        imported = (await client.post("/v1/agents/import", json=file)).json()
        assert imported["kelpie_notes"] == ["a_copy: the model openai-proxy/gpt-4o is openai/gpt-4o here."]
        assert (await client.get(f"/v1/agents/{imported['agent_ids'][0]}")).json()["model"] == "openai/gpt-4o"
        unknown = await client.post("/v1/agents/", json={"model": "openai-proxy/gpt-9"})
        assert (unknown.status_code, "Handle openai/gpt-9 not found" in unknown.text) == (404, True)


async def test_strict_tools_are_sent_where_their_schema_allows_it(tmp_path: Path) -> None:
    async with fake() as remote, served(tmp_path, openai_base_url=remote.url) as client:
        remote.will(answer({"data": [{"id": "gpt-4o"}]}), answer(completion({"content": "Hello."})))
        settings = {"provider_type": "openai", "parallel_tool_calls": True}
        tools = ["send_message", "conversation_search"]
        strict = await make_agent(client, model="openai/gpt-4o", tools=tools, model_settings=settings)
        plain = await make_agent(client, name="two", model="openai/gpt-4o", tools=tools)
        for agent in (strict, plain):
            await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
        first, second = (heard.body for heard in remote.heard if heard.method == "POST")
    assert (strict["model_settings"]["strict"], plain["model_settings"]["strict"]) == (True, False)
    by_name = {tool["function"]["name"]: tool["function"] for tool in first["tools"]}
    assert by_name["send_message"]["strict"] is True
    assert by_name["send_message"]["parameters"]["additionalProperties"] is False
    assert "strict" not in by_name["conversation_search"]  # it has optional arguments
    assert all("strict" not in tool["function"] for tool in second["tools"])
    # What is shown about parallel calls and effort: `llm_config` is what is sent.
    assert (first["parallel_tool_calls"], second["parallel_tool_calls"]) == (True, False)
    shown = [agent["llm_config"]["parallel_tool_calls"] for agent in (strict, plain)]
    assert shown == [True, False]
    assert plain["llm_config"]["reasoning_effort"] is None and "reasoning_effort" not in second


async def test_strict_is_shown_as_false_where_it_is_not_sent(tmp_path: Path) -> None:
    async with fake() as remote, served(tmp_path, anthropic_base_url=remote.url, anthropic_api_key="k") as client:
        remote.will(answer({"data": [{"id": "claude-sonnet-4-5-20250929"}]}))
        settings = {"provider_type": "anthropic", "strict": True}
        agent = await make_agent(client, model="anthropic/claude-sonnet-4-5-20250929", model_settings=settings)
    assert agent["model_settings"]["strict"] is False and agent["llm_config"]["strict"] is False


def test_only_schemas_of_the_strict_kind_are_closed() -> None:
    text: dict[str, Any] = {"type": "string", "description": "Text."}

    def object_of(required: list[str], **more: Any) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"a": text, "b": {"type": "array", "items": text}},
            "required": required,
            **more,
        }

    whole = closed(object_of(["a", "b"]))
    assert whole is not None and whole["additionalProperties"] is False
    assert closed({"type": "object", "properties": {}}) is not None
    nested = closed({"type": "object", "properties": {"o": object_of(["a", "b"])}, "required": ["o"]})
    assert nested is not None and nested["properties"]["o"]["additionalProperties"] is False
    refused = (
        object_of(["a"]),
        object_of(["a", "b"], additionalProperties=True),
        {"type": "object", "properties": {"a": {**text, "default": "x"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]},
    )
    assert [closed(schema) for schema in refused] == [None] * len(refused)
