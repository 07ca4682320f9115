"""Sending and reading messages over HTTP, on a whole Kelpie."""

from typing import Any

import httpx
import pytest
from letta_client.types.agents import LettaResponse

from kelpie.app import Kelpie
from kelpie.core.errors import ModelError, ModelFault
from tests.server.rig import Puppet, called, check_message, client_of, make_agent, said


@pytest.fixture
async def path(client: httpx.AsyncClient) -> str:
    made = await make_agent(client, memory_blocks=[{"label": "human", "value": "Bob"}])
    return f"/v1/agents/{made['id']}"


async def history(client: httpx.AsyncClient, path: str, **params: Any) -> list[dict[str, Any]]:
    answer = await client.get(f"{path}/messages", params=params)
    assert answer.status_code == 200, answer.text
    for message in answer.json():
        check_message(message)
    return answer.json()


async def test_a_plain_answer(client: httpx.AsyncClient, puppet: Puppet, path: str) -> None:
    puppet.script.append(said("Hello Bob."))
    answer = await client.post(f"{path}/messages", json={"input": "hi"})
    body = answer.json()
    LettaResponse.model_validate(body)
    assert [m["content"] for m in body["messages"]] == ["Hello Bob."]
    assert body["stop_reason"] == {"message_type": "stop_reason", "stop_reason": "end_turn"}
    assert body["usage"]["total_tokens"] == 12 and body["usage"]["step_count"] == 1
    assert body["logprobs"] is None and body["turns"] is None


async def test_a_tool_call_and_its_return_are_among_the_messages(
    client: httpx.AsyncClient, puppet: Puppet, path: str
) -> None:
    puppet.script += [called("memory_insert", '{"label": "human", "new_string": "likes tea"}'), said("Noted.")]
    body = (
        await client.post(f"{path}/messages", json={"messages": [{"role": "user", "content": "I like tea"}]})
    ).json()
    assert [m["message_type"] for m in body["messages"]] == [
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    assert body["messages"][1]["status"] == "success" and "likes tea" in body["messages"][1]["tool_return"]
    assert body["messages"][0]["step_id"] == body["messages"][1]["step_id"] != body["messages"][2]["step_id"]
    assert body["usage"]["step_count"] == 2
    only = {"input": "again", "include_return_message_types": ["assistant_message"]}
    assert [m["message_type"] for m in (await client.post(f"{path}/messages", json=only)).json()["messages"]] == [
        "assistant_message"
    ]


async def test_the_history_has_everything_in_order(client: httpx.AsyncClient, puppet: Puppet, path: str) -> None:
    puppet.script.append(said("one"))
    await client.post(f"{path}/messages", json={"messages": [{"role": "user", "content": "hi", "otid": "mine"}]})
    found = await history(client, path)
    assert [m["message_type"] for m in found] == ["system_message", "user_message", "assistant_message"]
    assert (found[1]["otid"], found[1]["content"], found[2]["content"]) == ("mine", "hi", "one")
    alone = (await client.get(f"/v1/messages/{found[1]['id']}")).json()
    assert alone == [found[1]]


async def test_an_assistants_message_that_was_put_in_is_not_sent_back(
    client: httpx.AsyncClient, puppet: Puppet, path: str
) -> None:
    sent = {"messages": [{"role": "assistant", "content": "I said"}, {"role": "user", "content": "what?"}]}
    body = (await client.post(f"{path}/messages", json=sent)).json()
    assert [m["content"] for m in body["messages"]] == ["ok"]
    assert [m["content"] for m in await history(client, path)][1:] == ["I said", "what?", "ok"]


async def test_paging_through_the_history_is_absolute(client: httpx.AsyncClient, path: str) -> None:
    for n in range(3):
        await client.post(f"{path}/messages", json={"input": f"m{n}"})
    ids = [m["id"] for m in await history(client, path)]
    assert len(ids) == 7

    async def page(**params: Any) -> list[str]:
        return [m["id"] for m in await history(client, path, **params)]

    assert await page(limit=2) == ids[-2:]
    assert await page(limit=2, order="asc") == ids[:2]
    assert await page(after=ids[2], limit=2, order="asc") == ids[3:5]
    assert await page(after=ids[2], limit=2) == ids[-2:]
    assert await page(before=ids[2]) == ids[:2]
    assert await page(limit=0) == []
    assert await page(conversation_id="default", limit=1) == ids[-1:]
    assert await page(group_id="group-x") == []
    for cursor in ("message-00000000-0000-4000-8000-0000000000ff", "bogus"):
        assert (await client.get(f"{path}/messages", params={"after": cursor})).status_code == 404
    for bad in ({"order": "sideways"}, {"limit": "-1"}):
        assert (await client.get(f"{path}/messages", params=bad)).status_code == 422


async def test_legacy_types_answer_by_tool_and_it_reads_as_an_answer(client: httpx.AsyncClient, puppet: Puppet) -> None:
    made = await make_agent(client, agent_type="memgpt_agent")
    path = f"/v1/agents/{made['id']}"
    puppet.script.append(called("send_message", '{"thinking": "I greet.", "message": "Hi."}'))
    body = (await client.post(f"{path}/messages", json={"input": "hello"})).json()
    assert [(m["message_type"], m.get("content", m.get("reasoning"))) for m in body["messages"]] == [
        ("reasoning_message", "I greet."),
        ("assistant_message", "Hi."),
    ]
    kinds = [m["message_type"] for m in await history(client, path, use_assistant_message=False)]
    assert kinds[-2:] == ["tool_call_message", "tool_return_message"]


@pytest.mark.parametrize(
    ("kind", "status", "name"),
    [
        (ModelFault.authentication, 401, "llm_authentication"),
        (ModelFault.insufficient_credits, 402, "llm_insufficient_credits"),
        (ModelFault.bad_request, 400, "llm_bad_request"),
        (ModelFault.timeout, 504, "llm_timeout"),
    ],
)
async def test_a_failing_provider_is_told_and_nothing_enters_the_history(
    client: httpx.AsyncClient, puppet: Puppet, path: str, kind: ModelFault, status: int, name: str
) -> None:
    puppet.script.append(ModelError(kind, "It failed.", detail="their words", hint="Do this."))
    answer = await client.post(f"{path}/messages", json={"input": "hi"})
    assert answer.status_code == status
    assert answer.json()["error"] == {
        "type": name,
        "message": "It failed.",
        "detail": "their words",
        "hint": "Do this.",
    }
    assert [m["message_type"] for m in await history(client, path)] == ["system_message"]
    assert (await client.post(f"{path}/messages", json={"input": "hi"})).status_code == 200  # the agent lives on


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"messages": []}, 422),
        ({"input": "a", "messages": [{"role": "user", "content": "b"}]}, 422),
        ({"input": "a", "stream_tokens": True}, 422),
        ({"input": "a", "background": True}, 422),
        ({"messages": [{"role": "robot", "content": "x"}]}, 422),
        ({"input": ""}, 400),
        ({"input": "a", "client_tools": [{"name": "not a name"}]}, 422),
        ({"input": "a", "override_model": "fake/none"}, 404),
        ({"messages": [{"type": "approval", "approvals": []}]}, 400),
    ],
)
async def test_sends_that_are_refused_start_nothing(
    client: httpx.AsyncClient, puppet: Puppet, path: str, body: dict[str, Any], status: int
) -> None:
    answer = await client.post(f"{path}/messages", json=body)
    assert answer.status_code == status and isinstance(answer.json()["detail"], str)
    assert puppet.asked == []
    assert (await client.get("/v1/runs/")).json() == []


async def test_no_steps_is_an_empty_turn(client: httpx.AsyncClient, puppet: Puppet, path: str) -> None:
    body = (await client.post(f"{path}/messages", json={"input": "a", "max_steps": 0})).json()
    assert (body["messages"], body["stop_reason"]["stop_reason"]) == ([], "end_turn")
    assert body["usage"]["total_tokens"] == 0 and puppet.asked == []


async def test_messages_cannot_be_edited(client: httpx.AsyncClient, path: str) -> None:
    message_id = (await history(client, path))[0]["id"]
    assert (await client.patch(f"{path}/messages/{message_id}", json={"content": "x"})).status_code == 405


async def test_streaming_here_is_for_sdk_v1_only(kelpie: Kelpie, path: str) -> None:
    async with client_of(kelpie, {"User-Agent": "curl/8.0"}) as old:
        answer = await old.post(f"{path}/messages", json={"input": "a", "streaming": True})
    assert answer.status_code == 422


async def test_the_run_and_its_steps_can_be_looked_at(client: httpx.AsyncClient, puppet: Puppet, path: str) -> None:
    puppet.script += [called("memory_insert", '{"label": "human", "new_string": "x"}'), said("done")]
    sent = (await client.post(f"{path}/messages", json={"input": "go"})).json()
    run_id = sent["messages"][0]["run_id"]
    run = (await client.get(f"/v1/runs/{run_id}")).json()
    assert (run["status"], run["stop_reason"], run["agent_id"]) == ("completed", "end_turn", path.rpartition("/")[2])
    assert run["request_config"]["assistant_message_tool_name"] == "send_message"
    assert (await client.get("/v1/runs/", params={"statuses": ["completed"]})).json() == [run]
    assert (await client.get("/v1/runs/", params={"active": True})).json() == []
    kinds = [m["message_type"] for m in (await client.get(f"/v1/runs/{run_id}/messages")).json()]
    assert kinds == ["user_message", "tool_call_message", "tool_return_message", "assistant_message"]
    newest = (await client.get(f"/v1/runs/{run_id}/messages", params={"order": "desc", "limit": 1})).json()
    assert [m["message_type"] for m in newest] == ["assistant_message"]
    assert (await client.get(f"/v1/runs/{run_id}/usage")).json()["total_tokens"] == 24
    assert (await client.get(f"/v1/runs/{run_id}/metrics")).json()["num_steps"] == 2
    steps = (await client.get(f"/v1/runs/{run_id}/steps")).json()
    assert [step["run_id"] for step in steps] == [run_id] * 2
    step = (await client.get(f"/v1/steps/{steps[0]['id']}")).json()
    assert step == steps[0]
    assert [m["content"] for m in (await client.get(f"/v1/steps/{step['id']}/messages")).json()] == ["done"]
    assert (await client.get(f"/v1/steps/{step['id']}/metrics")).json()["id"] == step["id"]
    assert len((await client.get("/v1/steps/", params={"limit": 1})).json()) == 1
    assert (await client.delete(f"/v1/runs/{run_id}")).status_code == 200
    assert (await client.get(f"/v1/runs/{run_id}")).status_code == 404


@pytest.mark.parametrize("path_end", ["", "/messages", "/steps", "/usage", "/metrics"])
async def test_run_ids(client: httpx.AsyncClient, path_end: str) -> None:
    unknown = "run-00000000-0000-4000-8000-0000000000ff"
    assert (await client.get(f"/v1/runs/{unknown}{path_end}")).status_code == 404
    assert (await client.get(f"/v1/runs/run-bad{path_end}")).status_code == 400


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"statuses": "bogus"}, 400),
        ({"limit": 5000}, 422),
        ({"agent_ids": ["a", "b"]}, 400),
        ({"stop_reason": "x"}, 422),
    ],
)
async def test_run_queries_that_cannot_be(client: httpx.AsyncClient, params: dict[str, Any], status: int) -> None:
    assert (await client.get("/v1/runs/", params=params)).status_code == status
