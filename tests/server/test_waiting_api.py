"""Calls that wait, over HTTP: in conversations that are deleted or compacted, and answered in the background."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.ids import OrganizationId
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig, said
from tests.server.test_background_api import ended, frames_of, resume
from tests.server.test_repair_api import INSERT, RULE, repaired, sound

CALL = "call_tea"
RULING = {"type": "approval", "tool_call_id": CALL, "approve": True}


@pytest.fixture
async def agent(client: httpx.AsyncClient) -> str:
    return await make(client)


async def make(client: httpx.AsyncClient) -> str:
    human = [{"label": "human", "value": "Ada"}]
    return (await make_agent(client, tools=[INSERT], tool_rules=[RULE], memory_blocks=human))["id"]


async def opened(client: httpx.AsyncClient, agent: str) -> str:
    return (await client.post(f"/v1/conversations/?agent_id={agent}", json={})).json()["id"]


async def waits(client: httpx.AsyncClient, puppet: Puppet, path: str, **body: Any) -> dict[str, Any]:
    """Says something upon which a call waits."""
    puppet.script.append(called(INSERT, json.dumps({"label": "human", "new_string": "tea"}), CALL))
    answer = await client.post(path, json={"input": "note tea", "streaming": False, **body})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["stop_reason"]["stop_reason"] == "requires_approval"
    return told["messages"][-1]


def answers(*rulings: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"type": "approval", "approvals": list(rulings)}]}


async def stored(kelpie: Kelpie) -> list[Any]:
    """The rows of what waits."""
    query = "SELECT agent_id, conversation_id, message_id FROM approvals"
    return await kelpie.world.database.read(lambda tx: list(tx.exec_driver_sql(query)))


async def results(client: httpx.AsyncClient, agent: str) -> list[dict[str, Any]]:
    """What every call of the agent's history has come to."""
    rows = (await client.get(f"/v1/agents/{agent}/messages?limit=100&order=asc")).json()
    return [one for row in rows if row["message_type"] == "tool_return_message" for one in row["tool_returns"]]


async def human(client: httpx.AsyncClient, agent: str) -> str:
    return (await client.get(f"/v1/agents/{agent}/core-memory/blocks/human")).json()["value"]


async def test_deleting_a_conversation_ends_what_waits_in_it_and_nothing_else(
    client: httpx.AsyncClient, kelpie: Kelpie, puppet: Puppet, agent: str
) -> None:
    gone, other = await opened(client, agent), await opened(client, agent)
    await waits(client, puppet, f"/v1/conversations/{gone}/messages")
    kept = await waits(client, puppet, f"/v1/conversations/{other}/messages")
    assert len(await stored(kelpie)) == 2
    assert (await client.delete(f"/v1/conversations/{gone}")).status_code == 200
    assert [tuple(row) for row in await stored(kelpie)] == [(agent, other, kept["id"])]
    [result] = await _results(kelpie)
    assert result["call_id"] == CALL and not result["ok"] and "deleted" in result["text"]
    assert await repaired(client) == {agent: []}, "it left nothing to mend"
    answer = await client.post(f"/v1/conversations/{gone}/messages", json=answers(RULING))
    assert answer.status_code == 404 and await human(client, agent) == "Ada"
    assert (await client.post(f"/v1/agents/{agent}/messages", json={"input": "hello"})).status_code == 200
    assert sound(puppet)


async def _results(kelpie: Kelpie) -> list[dict[str, Any]]:
    query = "SELECT tool_returns FROM messages WHERE role = 'tool'"
    rows = await kelpie.world.database.read(lambda tx: list(tx.exec_driver_sql(query)))
    return [result for (returned,) in rows for result in json.loads(returned)]


@pytest.mark.parametrize("in_conversation", [False, True])
async def test_the_routes_that_compact_leave_what_waits(
    client: httpx.AsyncClient, kelpie: Kelpie, puppet: Puppet, agent: str, in_conversation: bool
) -> None:
    thread = await opened(client, agent) if in_conversation else None
    path = f"/v1/conversations/{thread}/messages" if thread else f"/v1/agents/{agent}/messages"
    for number in range(6):
        await client.post(path, json={"input": f"fact {number} {'y' * 500}", "streaming": False})
    request = await waits(client, puppet, path)
    puppet.script.append(said("six facts"))
    compact = f"/v1/conversations/{thread}/compact" if thread else f"/v1/agents/{agent}/summarize"
    done = await client.post(compact, json={"compaction_settings": {"mode": "all"}})
    assert done.status_code == 200 and done.json()["num_messages_after"] < done.json()["num_messages_before"]
    assert [tuple(row) for row in await stored(kelpie)] == [(agent, thread or "", request["id"])]
    refused = await client.post(path, json={"input": "hello", "streaming": False})
    assert refused.status_code == 409 and refused.json()["detail"]["code"] == "PENDING_APPROVAL"
    told = await client.post(path, json={**answers(RULING), "streaming": False})
    assert told.status_code == 200 and await human(client, agent) == "Ada\ntea"
    assert sound(puppet) and await stored(kelpie) == []


async def test_an_async_send_brings_answers(client: httpx.AsyncClient, puppet: Puppet, agent: str) -> None:
    path = f"/v1/agents/{agent}/messages"
    request = await waits(client, puppet, path)
    puppet.script.append(said("done"))
    run = (await client.post(f"{path}/async", json=answers(RULING))).json()
    assert run["status"] == "created" and run["id"] != request["run_id"]
    over = await ended(client, run["id"])
    assert (over["status"], over["stop_reason"]) == ("completed", "end_turn")
    assert await human(client, agent) == "Ada\ntea" and [one["status"] for one in await results(client, agent)] == [
        "success"
    ]
    again = (await client.post(f"{path}/async", json=answers(RULING))).json()
    assert (await ended(client, again["id"]))["stop_reason"] == "end_turn", "it is told what came of the first"
    assert await human(client, agent) == "Ada\ntea", "and nothing ran twice"
    other = (await client.post(f"{path}/async", json=answers({**RULING, "approve": False}))).json()
    assert (await ended(client, other["id"]))["status"] == "failed", "what contradicts them is refused"


async def test_a_background_stream_brings_answers_and_can_be_read_again(
    client: httpx.AsyncClient, puppet: Puppet, agent: str
) -> None:
    path = f"/v1/agents/{agent}/messages"
    await waits(client, puppet, path)
    puppet.script.append(said("done"))
    frames = frames_of(await client.post(f"{path}/stream", json={**answers(RULING), "background": True}))
    kinds = [frame["message_type"] for frame in frames if frame != "[DONE]" and "message_type" in frame]
    assert kinds[:3] == ["ping", "tool_return_message", "assistant_message"] and "stop_reason" in kinds
    assert await resume(client, frames[0]["run_id"]) == frames
    assert await human(client, agent) == "Ada\ntea"


async def test_an_answer_that_was_acknowledged_survives_a_server_that_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie) as client:
        agent = await make(client)
        await waits(client, puppet, f"/v1/agents/{agent}/messages")
        monkeypatch.setattr(kelpie.runtime.run_queue, "submit", lambda *_: None)  # nobody takes it up in this life
        run = (await client.post(f"/v1/agents/{agent}/messages/async", json=answers(RULING))).json()
        assert (await client.get(f"/v1/runs/{run['id']}")).json()["status"] == "created"
    async with open_rig(tmp_path) as (kelpie, puppet), client_of(kelpie) as client:
        assert (await ended(client, run["id"]))["stop_reason"] == "end_turn"
        assert await human(client, agent) == "Ada\ntea" and sound(puppet)


async def test_what_waits_is_listed_for_all_conversations_and_for_one_agent(
    client: httpx.AsyncClient, kelpie: Kelpie, puppet: Puppet, agent: str
) -> None:
    async def listed(path: str = "kelpie", **params: Any) -> list[dict[str, Any]]:
        return (await client.get(f"/v1/{path}/approvals", params=params)).json()

    assert await listed() == []
    other = await make(client)
    thread = await opened(client, agent)
    first = await waits(client, puppet, f"/v1/agents/{agent}/messages")
    await waits(client, puppet, f"/v1/conversations/{thread}/messages")
    await waits(client, puppet, f"/v1/agents/{other}/messages")
    assert [(each["agent_id"], each["conversation_id"]) for each in await listed()] == [
        (other, "default"),
        (agent, thread),
        (agent, "default"),
    ], "the newest first"
    of_agent = await listed(f"agents/{agent}")
    assert of_agent[1]["message_id"] == first["id"] and len(await listed(limit=1)) == 1
    assert of_agent[1]["tool_calls"] == [{**first["tool_calls"][0], "waits_for": "approval"}]
    elsewhere = Caller(organization_id=OrganizationId("org-00000000-0000-4000-8000-000000000009"))
    assert await kelpie.api(elsewhere).pending_approvals.newest(None, 50) == []
    puppet.script.append(said("Noted."))
    await client.post(f"/v1/agents/{agent}/messages", json=answers(RULING))
    assert [each["conversation_id"] for each in await listed(f"agents/{agent}")] == [thread]


@pytest.mark.parametrize("way", ["async", "background"])
async def test_a_plain_message_in_the_background_is_refused_while_a_call_waits_and_leaves_no_run(
    client: httpx.AsyncClient, puppet: Puppet, agent: str, way: str
) -> None:
    path = f"/v1/agents/{agent}/messages"
    await waits(client, puppet, path)
    send = (f"{path}/async", {"input": "hello"})
    if way == "background":
        send = (f"{path}/stream", {"input": "hello", "background": True})
    refused = await client.post(send[0], json=send[1])
    assert refused.status_code == 409 and "PENDING_APPROVAL" in refused.text
    assert len((await client.get(f"/v1/runs/?agent_id={agent}")).json()) == 1
    other = await opened(client, agent)
    elsewhere = await client.post(f"/v1/conversations/{other}/messages", json={"input": "hello", "streaming": False})
    assert elsewhere.status_code == 200, "only this conversation waits"
