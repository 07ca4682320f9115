"""Conversations as records, over HTTP."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
from letta_client.types import Conversation

from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.conversations.conversations import ConversationQuery
from kelpie.core.errors import NotFound
from kelpie.core.ids import BlockId, ConversationId, OrganizationId, UserId
from kelpie.llm.provider.interface import ModelInfo
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig
from tests.server.rig import said as said_by_model

STRANGERS = Caller(
    UserId("user-11111111-0000-4000-8000-000000000001"), OrganizationId("org-11111111-0000-4000-8000-000000000001")
)
BLOCKS = [{"label": "human", "value": "Ann"}, {"label": "persona", "value": "Kind."}]


async def opened(client: httpx.AsyncClient, agent_id: str, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/conversations/", params={"agent_id": agent_id}, json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def said(client: httpx.AsyncClient, path: str, **params: Any) -> list[str]:
    """The texts of a thread, without its instructions."""
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return [m["content"] for m in answer.json() if m["message_type"] != "system_message"]


async def test_a_conversation_from_opening_to_closing(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, memory_blocks=BLOCKS)
    given = {
        "summary": "plans",
        "description": "about the trip",
        "model": "fake/model",
        "model_settings": {"provider_type": "openai", "temperature": 0.1},
        "context_window_limit": 9000,
    }
    made = await opened(client, agent["id"], **given)
    Conversation.model_validate(made)
    assert {name: made[name] for name in given if name != "model_settings"} == {
        name: value for name, value in given.items() if name != "model_settings"
    }
    assert made["model_settings"]["temperature"] == 0.1 and made["archived"] is False
    path = f"/v1/conversations/{made['id']}"
    read = (await client.get(path)).json()
    assert len(read["in_context_message_ids"]) == 1 and made["in_context_message_ids"] == []
    assert read | {"in_context_message_ids": []} == made

    changed = (await client.patch(path, json={"summary": "new", "description": None, "archived": True})).json()
    assert (changed["summary"], changed["description"], changed["archived"]) == ("new", None, True)
    assert changed["model"] == "fake/model" and changed["updated_at"] > made["updated_at"]
    at = "2026-01-02T03:04:05.000006Z"
    assert (await client.patch(path, json={"last_message_at": at})).json()["last_message_at"] == at
    assert (await client.patch(path, json={"archived": False})).json()["archived_at"] is None

    assert (await client.delete(path)).json() is None
    assert (await client.get(path)).status_code == 404 == (await client.delete(path)).status_code
    assert (await client.patch(path, json={"summary": "x"})).status_code == 404
    assert (await client.get(f"{path}/messages")).json() == []
    assert (await client.get("/v1/conversations/")).json() == []


async def test_lists(client: httpx.AsyncClient) -> None:
    agent, other = await make_agent(client), await make_agent(client, name="two")
    ids = [(await opened(client, agent["id"], summary=text))["id"] for text in ("Alpha 100%", "beta", "gamma")]
    elsewhere = (await opened(client, other["id"]))["id"]
    hidden = (await opened(client, agent["id"], hidden=True))["id"]
    await client.patch(f"/v1/conversations/{ids[1]}", json={"archived": True})
    await client.patch(f"/v1/conversations/{ids[0]}", json={"last_message_at": "2026-01-02T00:00:00Z"})

    async def found(**params: Any) -> list[str]:
        answer = await client.get("/v1/conversations/", params=params)
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json()]

    assert await found() == [elsewhere, *reversed(ids)]
    assert await found(agent_id=agent["id"], order="asc") == ids
    assert await found(agent_id=agent["id"], limit=1, after=ids[2]) == [ids[1]]
    assert await found(order="asc", after=ids[2]) == [elsewhere]
    assert await found(summary_search="ALPHA") == [ids[0]] == await found(summary_search="0%")
    assert await found(summary_search="_") == []
    assert await found(archive_status="archived") == [ids[1]]
    assert ids[1] not in await found(archive_status="unarchived")
    assert (await found(order_by="last_message_at"))[0] == ids[0]
    assert hidden in await found(show_hidden_conversations=True)
    assert (await client.get("/v1/conversations/", params={"after": "bogus"})).status_code == 404
    assert (await client.get("/v1/conversations/", params={"order": "up"})).status_code == 422
    assert (await client.get("/v1/conversations/", params={"agent_id": "bad"})).status_code == 400


async def test_what_is_wrong_opens_nothing(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, memory_blocks=BLOCKS)
    params = {"agent_id": agent["id"]}

    async def refused(status: int, params: dict[str, str], body: Any) -> None:
        answer = await client.post("/v1/conversations/", params=params, json=body)
        assert answer.status_code == status, answer.text

    await refused(422, {}, {})
    await refused(404, {"agent_id": "agent-00000000-0000-4000-8000-0000000000ff"}, {})
    await refused(400, params, {"isolated_block_labels": ["human", "nope"]})
    await refused(404, params, {"model": "fake/none"})
    await refused(400, params, {"model": "none"})
    await refused(422, params, {"context_window_limit": 0})
    await refused(422, params, {"summary": 7})
    assert (await client.get("/v1/conversations/")).json() == []
    assert (await client.get("/v1/blocks/count")).json() == 2  # no copy was left behind
    assert (await client.get("/v1/conversations/bad")).status_code == 422


async def test_a_thread_has_blocks_of_its_own(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, memory_blocks=BLOCKS)
    made = await opened(client, agent["id"], isolated_block_labels=["human"])
    (copy,) = made["isolated_block_ids"]
    path = f"/v1/conversations/{made['id']}"
    assert (await client.get(f"/v1/blocks/{copy}")).json()["value"] == "Ann"
    await client.patch(f"/v1/blocks/{copy}", json={"value": "Only here"})
    await client.patch(f"/v1/agents/{agent['id']}/core-memory/blocks/persona", json={"value": "Everywhere"})
    dry = (await client.post(f"{path}/recompile", params={"dry_run": True}, json={})).json()
    assert "Only here" in dry and "Everywhere" in dry and "Ann" not in dry
    before = (await client.get(f"{path}/messages")).json()[0]["content"]
    assert "Ann" in before
    assert (await client.post(f"{path}/recompile")).json() == dry
    assert (await client.get(f"{path}/messages")).json()[0]["content"] == dry
    assert "Only here" not in (await client.post(f"/v1/agents/{agent['id']}/recompile?dry_run=true")).json()

    forked = (await client.post(f"{path}/fork")).json()
    assert len(forked["isolated_block_ids"]) == 1 and forked["isolated_block_ids"] != [copy]
    await client.delete(path)
    assert (await client.get(f"/v1/blocks/{copy}")).status_code == 404
    await client.delete(f"/v1/agents/{agent['id']}")
    assert (await client.get("/v1/conversations/")).json() == []
    assert (await client.get(f"/v1/blocks/{forked['isolated_block_ids'][0]}")).status_code == 404


async def test_a_fork_begins_with_what_its_origin_holds(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client)
    for text in ("one", "two"):
        await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": text})
    default = "/v1/conversations/default/messages"
    assert await said(client, default, agent_id=agent["id"]) == ["one", "ok", "two", "ok"]
    assert await said(client, f"/v1/conversations/{agent['id']}/messages") == ["one", "ok", "two", "ok"]
    assert (await client.get("/v1/conversations/default/messages")).json() == []

    forked = (await client.post("/v1/conversations/default/fork", params={"agent_id": agent["id"]})).json()
    path = f"/v1/conversations/{forked['id']}"
    rows = (await client.get(f"{path}/messages")).json()
    assert [m["content"] for m in rows[:-1]] == ["ok", "two", "ok", "one"]
    assert rows[-1]["message_type"] == "system_message"  # newest first, the instructions last
    assert await said(client, f"{path}/messages", order="asc") == ["one", "ok", "two", "ok"]
    ids = [m["id"] for m in (await client.get(f"{path}/messages", params={"order": "asc"})).json()]
    assert (await client.get(path)).json()["in_context_message_ids"] == ids
    assert await said(client, f"{path}/messages", after=ids[2], order="asc") == ["two", "ok"]
    assert await said(client, f"{path}/messages", before=ids[2]) == ["one"]
    assert await said(client, f"{path}/messages", limit=2) == ["ok", "two"]
    unknown = "message-00000000-0000-4000-8000-0000000000ff"
    assert len(await said(client, f"{path}/messages", after=unknown, before="bogus")) == 4
    only = await client.get(f"{path}/messages", params={"include_return_message_types": "user_message"})
    assert [m["content"] for m in only.json()] == ["two", "one"]

    again = (await client.post(f"{path}/fork", params={"message_id": ids[1], "hidden": True})).json()
    assert await said(client, f"/v1/conversations/{again['id']}/messages") == ["one"] and again["hidden"]
    assert (await client.post(f"{path}/fork", params={"message_id": unknown})).status_code == 404
    assert (await client.post("/v1/conversations/default/fork")).status_code == 404
    # What a fork took over is not said twice to the agent, and goes on when the origin's thread is emptied.
    assert await said(client, f"/v1/agents/{agent['id']}/messages") == ["one", "ok", "two", "ok"]
    await client.patch(f"/v1/agents/{agent['id']}/reset-messages", json={})
    rows = (await client.get(f"{path}/messages")).json()
    assert [row["message_type"] for row in rows] == ["system_message"]
    assert (await client.get(path)).json()["in_context_message_ids"] == [rows[0]["id"]]


async def test_an_emptied_conversation_begins_with_its_instructions_again(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, memory_blocks=BLOCKS)
    made = await opened(client, agent["id"], isolated_block_labels=["human"])
    gone = await opened(client, agent["id"])
    await client.delete(f"/v1/conversations/{gone['id']}")
    path = f"/v1/conversations/{made['id']}"
    before = (await client.get(f"{path}/messages")).json()
    await client.post(f"{path}/messages", json={"input": "one", "streaming": False})
    await client.patch(f"/v1/agents/{agent['id']}/reset-messages", json={})
    emptied = (await client.get(f"{path}/messages")).json()
    assert [row["message_type"] for row in emptied] == ["system_message"] and emptied[0]["id"] != before[0]["id"]
    await client.post(f"{path}/messages", json={"input": "two", "streaming": False})
    assert (await client.post(f"{path}/recompile")).status_code == 200
    assert await said(client, f"{path}/messages", order="asc") == ["two", "ok"]  # it rewrote the instructions alone
    every = (await client.get(f"/v1/agents/{agent['id']}/messages", params={"limit": 100, "order": "asc"})).json()
    assert gone["id"] not in {row.get("conversation_id") for row in every}


async def test_another_organisation_sees_no_conversation(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    agent = await make_agent(client, memory_blocks=BLOCKS)
    made = await opened(client, agent["id"], isolated_block_labels=["human"])
    theirs = kelpie.api(STRANGERS)
    key = ConversationId(made["id"])
    assert await theirs.conversations.page(ConversationQuery(show_hidden=True)) == []
    for attempt in (
        theirs.conversations.get(key),
        theirs.conversations.update(key, {"summary": "x"}),
        theirs.conversations.delete(key),
        theirs.conversations.fork(key),
        theirs.conversations.recompile(key, True),
        theirs.blocks.get(BlockId(made["isolated_block_ids"][0])),
    ):
        try:
            await attempt
        except NotFound:
            continue
        raise AssertionError("seen by another organisation")
    assert (await client.get(f"/v1/conversations/{made['id']}")).json()["summary"] is None


async def test_a_fork_is_like_its_origin_at_that_moment_and_then_apart(
    client: httpx.AsyncClient, puppet: Puppet
) -> None:
    agent = await make_agent(client, memory_blocks=BLOCKS)
    options = {
        "model": "fake/model",
        "model_settings": {"provider_type": "openai", "temperature": 0.5},
        "context_window_limit": 9000,
    }
    made = await opened(client, agent["id"], isolated_block_labels=["human"], summary="origin", **options)
    (own,) = made["isolated_block_ids"]
    await client.patch(f"/v1/blocks/{own}", json={"value": "Only here"})
    forked = (await client.post(f"/v1/conversations/{made['id']}/fork")).json()
    assert {name: forked[name] for name in options} == {name: made[name] for name in options}
    assert (forked["summary"], forked["agent_id"]) == (None, agent["id"])
    (copy,) = forked["isolated_block_ids"]
    assert (await client.get(f"/v1/blocks/{copy}")).json()["value"] == "Only here"
    await client.patch(f"/v1/blocks/{own}", json={"value": "Later in the origin"})
    for thread, wanted in ((forked["id"], "Only here"), (made["id"], "Later in the origin")):
        body = {"input": "hi", "streaming": False}
        await client.post(f"/v1/conversations/{thread}/messages", json=body)
        prompt = puppet.asked[-1].system
        assert wanted in prompt and "Ann" not in prompt
    assert (await client.get(f"/v1/blocks/{copy}/agents")).json() == []


async def test_a_fork_does_not_take_over_a_call_that_waits(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make_agent(client)
    await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "one"})
    tool = {"name": "lookup", "description": "d", "parameters": {"type": "object", "properties": {}}}
    puppet.script.append(called("lookup", "{}"))
    body = {"messages": [{"role": "user", "content": "two"}], "client_tools": [tool]}
    waits = (await client.post(f"/v1/agents/{agent['id']}/messages", json=body)).json()
    assert waits["stop_reason"]["stop_reason"] == "requires_approval"
    forked = (await client.post("/v1/conversations/default/fork", params={"agent_id": agent["id"]})).json()
    path = f"/v1/conversations/{forked['id']}/messages"
    assert await said(client, path, order="asc") == ["one", "ok", "two"]
    assert (await client.post(path, json={"input": "three", "streaming": False})).status_code == 200
    roles = [each.message.role.value for each in puppet.asked[-1].messages if each.message.role.value != "system"]
    assert "tool" not in roles and _texts(puppet)[-1] == "three"
    (call,) = [one for one in waits["messages"] if one["message_type"] == "approval_request_message"]
    answer = {
        "type": "tool",
        "tool_call_id": call["tool_call"]["tool_call_id"],
        "tool_return": "found",
        "status": "success",
    }
    sent = {"messages": [{"type": "approval", "approvals": [answer]}], "client_tools": [tool]}
    told = await client.post(f"/v1/agents/{agent['id']}/messages", json=sent)
    assert told.status_code == 200 and "three" not in _texts(puppet)
    assert [each.message.role.value for each in puppet.asked[-1].messages][-1] == "tool"


def _texts(puppet: Puppet) -> list[str]:
    return [each.message.text for each in puppet.asked[-1].messages]


async def test_a_fork_up_to_a_call_takes_its_results_along(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make_agent(client)
    puppet.script += [called("nothing_of_this_name", "{}"), said_by_model("done")]
    await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "one"})
    await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "two"})
    rows = (await client.get(f"/v1/agents/{agent['id']}/messages?order=asc&limit=100")).json()
    kinds = ["user_message", "tool_call_message", "tool_return_message", "assistant_message"]
    at = [row["message_type"] for row in rows].index("tool_call_message")
    assert [row["message_type"] for row in rows[at - 1 : at + 3]] == kinds
    for place, wanted in ((at - 1, kinds[:1]), (at, kinds[:3]), (at + 1, kinds[:3]), (at + 2, kinds)):
        params = {"agent_id": agent["id"], "message_id": rows[place]["id"]}
        forked = (await client.post("/v1/conversations/default/fork", params=params)).json()
        listed = (await client.get(f"/v1/conversations/{forked['id']}/messages?order=asc")).json()
        assert [row["message_type"] for row in listed][1:] == wanted


async def test_a_deletion_takes_what_is_its_own_and_nothing_else(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, memory_blocks=BLOCKS)
    first, second = [await opened(client, agent["id"], isolated_block_labels=["human"]) for _ in range(2)]
    for thread in (first, second):
        body = {"input": f"in {thread['id']}", "streaming": False}
        await client.post(f"/v1/conversations/{thread['id']}/messages", json=body)
    forked = (await client.post(f"/v1/conversations/{first['id']}/fork")).json()
    assert (await client.delete(f"/v1/conversations/{first['id']}")).status_code == 200
    path = f"/v1/conversations/{first['id']}"
    for method, each in (("GET", path), ("DELETE", path), ("POST", f"{path}/fork"), ("PATCH", path)):
        assert (await client.request(method, each, json={})).status_code == 404, method
    assert await said(client, f"{path}/messages") == []
    for thread in (second, forked):
        told = await said(client, f"/v1/conversations/{thread['id']}/messages", order="asc")
        assert told == [f"in {(first if thread is forked else second)['id']}", "ok"]
        (own,) = thread["isolated_block_ids"]
        assert (await client.get(f"/v1/blocks/{own}")).json()["value"] == "Ann"
    every = (await client.get(f"/v1/agents/{agent['id']}/messages?limit=100")).json()
    assert f"in {first['id']}" in [row["content"] for row in every]  # the agent's history keeps it
    assert len((await client.get(f"/v1/agents/{agent['id']}/core-memory/blocks")).json()) == 2


async def test_a_turn_ends_with_its_conversation_also_while_the_model_is_silent(
    client: httpx.AsyncClient, puppet: Puppet
) -> None:
    agent = await make_agent(client)
    gone, stays = [await opened(client, agent["id"]) for _ in range(2)]
    puppet.script.append(asyncio.Event())  # it never answers
    body = {"input": "one", "streaming": False}
    asking = asyncio.ensure_future(client.post(f"/v1/conversations/{gone['id']}/messages", json=body))
    async with asyncio.timeout(20):
        await puppet.waiting.wait()
        assert (await client.delete(f"/v1/conversations/{gone['id']}")).status_code == 200
        await asking
    active = await client.get("/v1/runs/", params={"agent_id": agent["id"], "active": True})
    assert active.json() == []
    told = await client.post(f"/v1/conversations/{stays['id']}/messages", json=body)
    assert told.status_code == 200 and await said(client, f"/v1/conversations/{stays['id']}/messages") == ["ok", "one"]


async def test_calls_that_wait_in_a_deleted_conversation_are_not_made(
    client: httpx.AsyncClient, puppet: Puppet
) -> None:
    agent = await make_agent(client)
    gone = await opened(client, agent["id"])
    tool = {"name": "lookup", "description": "d", "parameters": {"type": "object", "properties": {}}}
    puppet.script.append(called("lookup", "{}"))
    body = {"messages": [{"role": "user", "content": "one"}], "client_tools": [tool], "streaming": False}
    waits = (await client.post(f"/v1/conversations/{gone['id']}/messages", json=body)).json()
    assert waits["stop_reason"]["stop_reason"] == "requires_approval"
    assert len((await client.get("/v1/kelpie/approvals")).json()) == 1
    assert (await client.delete(f"/v1/conversations/{gone['id']}")).status_code == 200
    assert (await client.get("/v1/kelpie/approvals")).json() == []
    (run,) = (await client.get("/v1/runs/", params={"agent_id": agent["id"]})).json()
    assert run["completed_at"] is not None
    told = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "two"})
    assert told.status_code == 200 and await said(client, f"/v1/conversations/{agent['id']}/messages") == ["two", "ok"]


async def test_the_model_of_a_conversation_answers_there_alone_from_the_next_turn_on(tmp_path: Path) -> None:
    async with open_rig(tmp_path, puppet=TwoModels()) as (kelpie, puppet), client_of(kelpie) as client:
        agent = await make_agent(client)
        first, second = [await opened(client, agent["id"]) for _ in range(2)]
        body = {"input": "hi", "streaming": False}
        for thread in (first, second):
            await client.post(f"/v1/conversations/{thread['id']}/messages", json=body)
        path = f"/v1/conversations/{first['id']}"
        changed = {"model": "fake/other", "summary": "new", "description": "d"}
        after = (await client.patch(path, json=changed)).json()
        assert {name: after[name] for name in changed} == changed and after["updated_at"] > first["updated_at"]
        for thread, model in ((first, "other"), (second, "model")):
            await client.post(f"/v1/conversations/{thread['id']}/messages", json=body)
            assert puppet.asked[-1].model == model
        forked = (await client.post(f"{path}/fork")).json()
        await client.post(f"/v1/conversations/{forked['id']}/messages", json=body)
        assert puppet.asked[-1].model == "other"
        cleared = (await client.patch(path, json={"model": None, "summary": None})).json()
        assert (cleared["model"], cleared["summary"], cleared["description"]) == (None, None, "d")
        await client.post(f"{path}/messages", json=body)
        assert puppet.asked[-1].model == "model"
        assert (await client.patch(path, json={"model": "fake/none"})).status_code == 404


class TwoModels(Puppet):
    async def models(self) -> list[ModelInfo]:
        return [self.describe("model"), self.describe("other")]
