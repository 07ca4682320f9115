"""Talking inside conversations, over HTTP: streamed unless that is switched off, and one turn at a time."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.server.rig import Puppet, make_agent, said
from tests.server.test_conversations_api import opened


def frames(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    data = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in data]


async def test_the_answer_is_streamed_unless_that_is_switched_off(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make_agent(client)
    conversation = (await opened(client, agent["id"]))["id"]
    path = f"/v1/conversations/{conversation}/messages"
    puppet.script.append(said("streamed"))
    heard = frames(await client.post(path, json={"input": "hi"}))
    assert [f if f == "[DONE]" else f["message_type"] for f in heard] == [
        "ping", "assistant_message", "stop_reason", "usage_statistics", "[DONE]",
    ]  # fmt: skip
    puppet.script.append(said("whole"))
    whole = (await client.post(path, json={"input": "again", "streaming": False})).json()
    assert [m["content"] for m in whole["messages"]] == ["whole"] and whole["stop_reason"]["stop_reason"] == "end_turn"
    tokens = frames(await client.post(path, json={"input": "once more", "stream_tokens": True, "include_pings": False}))
    assert tokens[0]["message_type"] == "assistant_message"
    (run, *_) = (await client.get("/v1/runs/", params={"conversation_id": conversation, "limit": 1})).json()
    assert run["conversation_id"] == conversation and run["metadata"]["run_type"] == "send_conversation_message"
    kept = (await client.get(path, params={"order": "asc"})).json()
    assert [m["content"] for m in kept[1:]] == ["hi", "streamed", "again", "whole", "once more", "ok"]
    read = (await client.get(f"/v1/conversations/{conversation}")).json()
    assert len(read["in_context_message_ids"]) == 7 and read["last_message_at"] is not None


async def test_the_default_conversation_goes_by_its_agent(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client)
    body = {"input": "hi", "streaming": False}
    for path, extra in (("default", {"agent_id": agent["id"]}), (agent["id"], {})):
        answer = await client.post(f"/v1/conversations/{path}/messages", json={**body, **extra})
        assert answer.status_code == 200 and answer.json()["messages"][0]["content"] == "ok"
    assert len((await client.get(f"/v1/agents/{agent['id']}")).json()["message_ids"]) == 5
    (run, *_) = (await client.get("/v1/runs/", params={"agent_id": agent["id"]})).json()
    assert run["conversation_id"] is None
    nobody = await client.post("/v1/conversations/default/messages", json=body)
    assert nobody.status_code == 404 and "id='default'. Send the agent_id" in nobody.json()["detail"]
    unknown = "agent-00000000-0000-4000-8000-000000000009"
    assert (await client.post(f"/v1/conversations/{unknown}/messages", json=body)).status_code == 404


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("place", ["conversation", "default"])
async def test_a_busy_conversation_tells_whose_turn_it_is(
    client: httpx.AsyncClient, puppet: Puppet, place: str, streaming: bool
) -> None:
    agent = await make_agent(client)
    conversation = (await opened(client, agent["id"]))["id"] if place == "conversation" else "default"
    path, whose = f"/v1/conversations/{conversation}/messages", {"agent_id": agent["id"]}
    go_on = asyncio.Event()
    puppet.script.append(go_on)
    first = asyncio.ensure_future(client.post(path, json={"input": "first", "streaming": False, **whose}))
    async with asyncio.timeout(10):
        await puppet.waiting.wait()
    refused = await client.post(path, json={"input": "second", "streaming": streaming, **whose})
    assert refused.status_code == 409 and refused.headers["x-should-retry"] == "false"
    told = refused.json()
    assert told["run_id"] in told["detail"] and told["detail"].startswith("CONFLICT")
    elsewhere = (await opened(client, agent["id"]))["id"]
    answer = await client.post(f"/v1/conversations/{elsewhere}/messages", json={"input": "x", "streaming": False})
    assert answer.json()["messages"][0]["content"] == "ok"
    queued = asyncio.ensure_future(client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "plain"}))
    go_on.set()
    assert (await first).status_code == (await queued).status_code == 200
    assert {message["run_id"] for message in (await first).json()["messages"]} == {told["run_id"]}
    after = await client.post(path, json={"input": "third", "streaming": False, **whose})
    assert after.status_code == 200 and after.json()["messages"][0]["content"] == "ok"


async def test_a_turn_in_the_background_keeps_its_conversation_until_its_end(
    client: httpx.AsyncClient, puppet: Puppet
) -> None:
    agent = await make_agent(client)
    path = f"/v1/conversations/{(await opened(client, agent['id']))['id']}/messages"
    go_on = asyncio.Event()
    puppet.script.append(go_on)
    first = asyncio.ensure_future(client.post(path, json={"input": "first", "background": True}))
    async with asyncio.timeout(10):
        await puppet.waiting.wait()
    refusals = [
        await client.post(path, json={"input": "second", "streaming": background, "background": background})
        for background in (True, False)
    ]
    go_on.set()
    heard = frames(await first)
    assert heard[-1] == "[DONE]"
    assert [(answer.status_code, answer.json()["run_id"]) for answer in refusals] == [(409, heard[0]["run_id"])] * 2
    for _ in range(3):
        assert (await client.post(path, json={"input": "next", "streaming": False})).status_code == 200


async def test_a_deleted_conversation_is_not_found(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client)
    conversation = (await opened(client, agent["id"]))["id"]
    path = f"/v1/conversations/{conversation}"
    assert (await client.post(f"{path}/messages", json={"input": "hi", "streaming": False})).status_code == 200
    assert (await client.delete(path)).status_code == 200
    gone = await client.post(f"{path}/messages", json={"input": "hi"})
    assert gone.status_code == 404 and conversation in gone.json()["detail"]


@pytest.mark.parametrize("body", [{}, {"input": "a", "messages": []}, {"input": "a", "max_steps": -1}, {"input": 7}])
async def test_a_wrong_body_is_refused_in_full(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    agent = await make_agent(client)
    conversation = (await opened(client, agent["id"]))["id"]
    assert (await client.post(f"/v1/conversations/{conversation}/messages", json=body)).status_code == 422
    assert len((await client.get(f"/v1/conversations/{conversation}/messages")).json()) == 1
