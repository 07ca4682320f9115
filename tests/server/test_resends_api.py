"""Messages that come again under their ids, to clients that wait for them: one turn, and everybody gets its answer."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from kelpie.agent.events.event_buffer import JOINED_MAX, TurnStream
from kelpie.core.errors import ModelError, ModelFault
from tests.server.rig import Puppet, called, make_agent, said

OTID = "6f6a2f2e-0000-4000-8000-00000000dcba"
INSERT = called("memory_insert", '{"label": "human", "new_string": "tea"}')


@pytest.fixture
async def agent(client: httpx.AsyncClient) -> str:
    made = await make_agent(client, memory_blocks=[{"label": "human", "value": "Bob"}])
    return made["id"]


@pytest.fixture(params=["agent", "conversation"])
async def path(request: pytest.FixtureRequest, client: httpx.AsyncClient, agent: str) -> str:
    if request.param == "agent":
        return f"/v1/agents/{agent}/messages"
    made = await client.post("/v1/conversations/", params={"agent_id": agent}, json={})
    return f"/v1/conversations/{made.json()['id']}/messages"


def body(content: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content, "otid": OTID}], "streaming": False, **fields}


def frames(answer: httpx.Response) -> list[Any]:
    """The frames that are no pings."""
    assert answer.status_code == 200, answer.text
    data = [frame.rpartition("data: ")[2] for frame in answer.text.strip().split("\n\n")]
    return [one for one in data if '"ping"' not in one]


def content(whole: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["id"], one["message_type"]) for one in whole["messages"]]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[TurnStream]:
    """The turns that somebody has asked to listen to as well."""
    found: list[TurnStream] = []
    join = TurnStream.join

    def noted(turn: TurnStream) -> TurnStream:
        found.append(turn)
        return join(turn)

    monkeypatch.setattr(TurnStream, "join", noted)
    return found


async def together(
    client: httpx.AsyncClient,
    puppet: Puppet,
    joined: list[TurnStream],
    path: str,
    bodies: Sequence[dict[str, Any]],
    *script: Any,
) -> list[httpx.Response]:
    """The first send, and the others while the model is still thinking about its second step."""
    gate = asyncio.Event()
    puppet.script += [INSERT, gate, *script]
    first = asyncio.create_task(client.post(path, json=bodies[0]))
    async with asyncio.timeout(20):
        await puppet.waiting.wait()
        others = [asyncio.create_task(client.post(path, json=one)) for one in bodies[1:]]
        while len(joined) < len(others):  # noqa: ASYNC110 - they tell nobody
            await asyncio.sleep(0.01)
        gate.set()
        return list(await asyncio.gather(first, *others))


async def test_whoever_asks_again_meanwhile_gets_the_same_answer(
    client: httpx.AsyncClient, puppet: Puppet, joined: list[TurnStream], path: str
) -> None:
    answers = await together(client, puppet, joined, path, [body()] * 3, said("one answer"))
    assert [answer.status_code for answer in answers] == [200] * 3
    assert answers[0].json() == answers[1].json() == answers[2].json()
    assert answers[0].json()["messages"][-1]["content"] == "one answer" and len(puppet.asked) == 2


@pytest.mark.parametrize("tokens", [False, True], ids=["steps", "tokens"])
async def test_a_stream_is_heard_from_its_beginning(
    client: httpx.AsyncClient, puppet: Puppet, joined: list[TurnStream], path: str, tokens: bool
) -> None:
    asked = body(streaming=True, stream_tokens=tokens)
    answers = await together(client, puppet, joined, path, [asked, asked, body()], said("word by word"))
    told = frames(answers[0])
    assert told[-1] == "[DONE]" and json.loads(told[-3])["stop_reason"] == "end_turn"
    assert sum("assistant_message" in frame for frame in told) == (3 if tokens else 1)
    assert frames(answers[1]) == told and len(puppet.asked) == 2
    assert answers[2].json()["messages"][-1]["content"] == "word by word"


async def test_after_the_end_it_is_told_again(client: httpx.AsyncClient, puppet: Puppet, path: str) -> None:
    puppet.script += [INSERT, said("once"), said("another")]
    first = (await client.post(path, json=body())).json()
    again = (await client.post(path, json=body())).json()
    assert again["messages"] == first["messages"] and again["stop_reason"] == first["stop_reason"]
    assert again["usage"] == first["usage"] | {"context_tokens": None}
    streamed = frames(await client.post(path, json=body(streaming=True)))
    assert [json.loads(one) for one in streamed[:-3]] == first["messages"] and len(puppet.asked) == 2
    other = (await client.post(path, json=body("other words"))).json()
    assert other["messages"][-1]["content"] == "another"


async def test_what_failed_is_tried_anew(client: httpx.AsyncClient, puppet: Puppet, path: str) -> None:
    puppet.script += [ModelError(ModelFault.bad_request, "No."), said("now")]
    assert (await client.post(path, json=body())).status_code == 400
    assert (await client.post(path, json=body())).json()["messages"][-1]["content"] == "now"


async def test_a_failure_is_told_to_all_who_wait(
    client: httpx.AsyncClient, puppet: Puppet, joined: list[TurnStream], path: str
) -> None:
    answers = await together(client, puppet, joined, path, [body()] * 2, ModelError(ModelFault.bad_request, "No."))
    assert [answer.status_code for answer in answers] == [400, 400] and len(puppet.asked) == 2


async def test_what_the_history_no_longer_has_is_said_anew(
    client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    puppet.script += [said("first"), said("second")]
    path = f"/v1/agents/{agent}/messages"
    await client.post(path, json=body())
    assert (await client.patch(f"/v1/agents/{agent}/reset-messages", json={})).status_code == 200
    assert (await client.post(path, json=body())).json()["messages"][-1]["content"] == "second"


async def test_other_words_meanwhile_are_another_message(client: httpx.AsyncClient, puppet: Puppet, agent: str) -> None:
    conversation = (await client.post("/v1/conversations/", params={"agent_id": agent}, json={})).json()["id"]
    gate = asyncio.Event()
    puppet.script += [gate, said("first"), said("second")]
    path = f"/v1/conversations/{conversation}/messages"
    first = asyncio.create_task(client.post(path, json=body()))
    async with asyncio.timeout(20):
        await puppet.waiting.wait()
        other = await client.post(path, json=body("other"))
        gate.set()
        assert (await first).json()["messages"][-1]["content"] == "first"
    assert other.status_code == 409 and other.json()["run_id"].startswith("run-")
    assert (await client.post(path, json=body("other"))).json()["messages"][-1]["content"] == "second"


async def test_only_so_many_listen(
    client: httpx.AsyncClient, puppet: Puppet, joined: list[TurnStream], path: str
) -> None:
    answers = await together(client, puppet, joined, path, [body()] * (JOINED_MAX + 2), said("to many"))
    assert sorted(answer.status_code for answer in answers) == [200] * (JOINED_MAX + 1) + [429]
    assert len(puppet.asked) == 2


async def test_calls_that_wait_are_told_again(client: httpx.AsyncClient, puppet: Puppet, path: str) -> None:
    puppet.script += [called("look", "{}")]
    tools = [{"name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}}]
    first = (await client.post(path, json=body(client_tools=tools))).json()
    assert first["stop_reason"]["stop_reason"] == "requires_approval"
    again = (await client.post(path, json=body(client_tools=tools))).json()
    assert again["messages"] == first["messages"] and again["stop_reason"] == first["stop_reason"]
    assert (await client.post(path, json=body("other words"))).status_code == 409 and len(puppet.asked) == 1
