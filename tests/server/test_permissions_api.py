"""Permissions, limits and the record of calls over HTTP: set, read back, refused with the field's name; and who may
change them."""

from typing import Any

import httpx
import pytest

from tests.server.rig import Puppet, called, said

OPEN = {"allow": None, "deny": []}


async def make(client: httpx.AsyncClient, **fields: Any) -> str:
    answer = await client.post("/v1/agents/", json={"model": "fake/model", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


async def test_lists_and_limits_of_an_agent_come_back(client: httpx.AsyncClient) -> None:
    permits = {"allow": ["memory_*"], "deny": ["kind:custom"]}
    of_one_call = {
        "memory_mb": 64,
        "timeout_s": 2.5,
        "cpu_share": 0.5,
        "processes": 8,
        "output_mb": 0.5,
        "scratch_mb": 3,
    }
    limits = {"tool_calls_per_hour": 5, "scratch_mb": 3, **of_one_call}
    agent = await make(client, kelpie_permissions=permits, kelpie_limits=limits)
    found = (await client.get(f"/v1/agents/{agent}")).json()
    assert found["kelpie_permissions"] == permits
    assert found["kelpie_limits"] == {"tokens_per_hour": None, "cpu_seconds_per_hour": None, **limits}
    await client.patch(f"/v1/agents/{agent}", json={"kelpie_limits": {"cpu_seconds_per_hour": 1.5}})
    found = (await client.patch(f"/v1/agents/{agent}", json={"kelpie_permissions": None})).json()
    assert found["kelpie_permissions"] is None and found["kelpie_limits"]["cpu_seconds_per_hour"] == 1.5
    assert found["kelpie_limits"]["tool_calls_per_hour"] is None
    assert (await client.patch(f"/v1/agents/{agent}", json={"name": "x"})).json()["kelpie_limits"] is not None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kelpie_permissions": {"deny": ["a b"]}}, "kelpie_permissions.deny"),
        ({"kelpie_permissions": {"allow": ["capability:flight"]}}, "kelpie_permissions.allow"),
        ({"kelpie_permissions": {"forbid": []}}, "forbid"),
        ({"kelpie_permissions": {"deny": [1]}}, "deny"),
        ({"kelpie_limits": {"tool_calls_per_hour": -1}}, "tool_calls_per_hour"),
        ({"kelpie_limits": {"memory_mb": 1}}, "memory_mb"),
        ({"kelpie_limits": {"timeout_s": 0}}, "timeout_s"),
        ({"kelpie_limits": {"processes": 0}}, "processes"),
        ({"kelpie_limits": {"seconds": 1}}, "seconds"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(client: httpx.AsyncClient, body: Any, field: str) -> None:
    answer = await client.post("/v1/agents/", json={"model": "fake/model", **body})
    assert 400 <= answer.status_code < 500 and field in answer.text


async def test_what_an_agent_may_is_shown_with_who_says_so(client: httpx.AsyncClient) -> None:
    agent = await make(client, kelpie_permissions={"deny": ["memory_*"]})
    answer = await client.put("/v1/kelpie/policy", json={"permissions": {"deny": ["conversation_search"]}})
    assert answer.status_code == 200 and answer.json()["version"] == 1
    found = (await client.get(f"/v1/agents/{agent}/permissions")).json()
    assert found["layers"] == {
        "organization": {"allow": None, "deny": ["conversation_search"]},
        "agent": {"allow": None, "deny": ["memory_*"]},
    }
    by_name = {tool["name"]: tool for tool in found["tools"]}
    assert by_name["conversation_search"]["refused_by"] == "organization"
    assert by_name["memory_insert"]["refused_by"] == "agent" and "memory_*" in by_name["memory_insert"]["reason"]
    assert by_name["memory_insert"]["capabilities"] == ["memory"] and by_name["memory_insert"]["kind"] == "builtin"
    registry = {tool["name"]: tool for tool in (await client.get("/v1/kelpie/tools?limit=1000")).json()}
    assert registry["memory_insert"]["permitted"] and not registry["conversation_search"]["permitted"]
    assert (await client.put("/v1/kelpie/policy", json={})).json()["version"] == 2
    found = (await client.get("/v1/kelpie/policy")).json()
    assert found["permissions"] == OPEN and found["server"]["permissions"] == OPEN


async def test_calls_are_listed_counted_and_paged(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = await make(client, kelpie_limits={"tool_calls_per_hour": 2})
    for number in range(3):
        puppet.script.extend([called("conversation_search", '{"query": "x"}', f"call_{number}"), said("well")])
        await client.post(f"/v1/agents/{agent}/messages", json={"input": "go"})
    path = f"/v1/agents/{agent}/tool-calls"
    calls = (await client.get(path)).json()
    assert [call["tool_call_id"] for call in calls] == ["call_2", "call_1", "call_0"]
    assert [call["outcome"] for call in calls] == ["refused", "success", "success"]
    assert all(call["tool"] == "conversation_search" and call["run_id"] and call["step_id"] for call in calls)
    page = (await client.get(path, params={"limit": 1, "before": calls[0]["number"]})).json()
    assert page == calls[1:2]
    assert (await client.get(path, params={"outcome": "refused"})).json() == calls[:1]
    assert (await client.get(path, params={"run_id": calls[2]["run_id"]})).json() == calls[2:]
    assert (await client.get("/v1/kelpie/tools/calls", params={"tool": "conversation_search"})).json() == calls
    limits = (await client.get(f"/v1/agents/{agent}/limits")).json()
    assert limits["used"]["tool_calls"] == 2 and limits["used"]["tokens"] == 72
    assert limits["limits"]["tool_calls_per_hour"] == 2 and limits["frees_at"]
    (usage,) = (await client.get("/v1/kelpie/tools/usage")).json()
    assert (usage["tool"], usage["calls"], usage["refused"]) == ("conversation_search", 3, 1)


async def test_who_is_confined_to_an_agent_cannot_loosen_it(client: httpx.AsyncClient) -> None:
    agent = await make(client, kelpie_permissions={"deny": ["*"]}, kelpie_limits={"tool_calls_per_hour": 1})
    key = (await client.post("/v1/kelpie/keys", json={"name": "k", "scopes": ["write"], "agent_ids": [agent]})).json()
    headers = {"Authorization": f"Bearer {key['key']}"}
    for body in ({"kelpie_permissions": None}, {"kelpie_limits": None}, {"kelpie_budget": None}):
        answer = await client.patch(f"/v1/agents/{agent}", json=body, headers=headers)
        assert answer.status_code == 403 and next(iter(body)) in answer.text
    assert (await client.get(f"/v1/agents/{agent}/limits", headers=headers)).status_code == 200
    assert (await client.put("/v1/kelpie/policy", json={}, headers=headers)).status_code == 403
    plain = (await client.post("/v1/kelpie/keys", json={"name": "k", "scopes": ["write"]})).json()
    headers = {"Authorization": f"Bearer {plain['key']}"}
    assert (await client.put("/v1/kelpie/policy", json={}, headers=headers)).status_code == 403


async def test_a_tool_declares_what_it_reaches(client: httpx.AsyncClient) -> None:
    source = 'def rates(x: str) -> str:\n    """It.\n\n    Args:\n        x: it\n    """\n    return x\n'
    body = {"source_code": source, "kelpie_sandbox": {"capabilities": ["messaging"], "egress": ["rates.example"]}}
    assert (await client.post("/v1/tools/", json=body)).status_code == 200
    registry = {tool["name"]: tool for tool in (await client.get("/v1/kelpie/tools?limit=1000")).json()}
    assert registry["rates"]["capabilities"] == ["code", "messaging", "network"]
    bad = {"source_code": source, "kelpie_sandbox": {"capabilities": ["flight"]}}
    assert (await client.post("/v1/tools/", json=bad)).status_code == 422


async def test_calls_by_hand_are_held_to_the_same_and_count_in_a_live_agent(
    client: httpx.AsyncClient, puppet: Puppet
) -> None:
    agent = await make(client, kelpie_limits={"tool_calls_per_hour": 2}, kelpie_permissions={"deny": ["memory_*"]})
    look, run = called("conversation_search", '{"query": "x"}'), f"/v1/agents/{agent}/tools"
    puppet.script.extend([look, said("well")])
    await client.post(f"/v1/agents/{agent}/messages", json={"input": "go"})
    body = {"args": {"label": "human", "new_string": "x"}}
    refused = (await client.post(f"{run}/memory_insert/run", json=body)).json()
    assert refused["status"] == "error" and "may not use it" in str(refused["stderr"])
    done = (await client.post(f"{run}/conversation_search/run", json={"args": {"query": "x"}})).json()
    assert done["status"] == "success"
    puppet.script.extend([look, said("well")])
    answer = (await client.post(f"/v1/agents/{agent}/messages", json={"input": "go"})).json()
    told = [one for one in answer["messages"] if one["message_type"] == "tool_return_message"]
    assert told[0]["status"] == "error" and "used up" in told[0]["tool_return"]
    again = (await client.post(f"{run}/conversation_search/run", json={"args": {"query": "x"}})).json()
    assert "used up" in str(again["stderr"])
    calls = (await client.get(f"/v1/agents/{agent}/tool-calls")).json()
    outcomes = [(call["outcome"], call["run_id"] is None) for call in calls]
    assert outcomes == [
        ("refused", True),
        ("refused", False),
        ("success", True),
        ("refused", True),
        ("success", False),
    ]
