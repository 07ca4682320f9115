"""Agents over HTTP, on a whole Kelpie."""

from typing import Any

import httpx
import pytest
from letta_client.types import AgentState

from kelpie.app import Kelpie
from tests.server.rig import Puppet, client_of, make_agent

UNKNOWN = "agent-00000000-0000-4000-8000-0000000000ff"
RELATIONS = ("blocks", "tools", "tags", "secrets")
ALL = {"include": ["agent.blocks", "agent.tools", "agent.tags", "agent.secrets"]}


async def full_agent(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    return await make_agent(
        client,
        memory_blocks=[{"label": "human", "value": "Bob"}],
        tags=["a", "b"],
        secrets={"KEY": "v"},
        **fields,
    )


async def test_create_then_read_back_the_same(client: httpx.AsyncClient) -> None:
    made = await full_agent(client, description="d", metadata={"k": [1, {"x": None}]}, timezone="Europe/Berlin")
    AgentState.model_validate(made)
    assert (made["model"], made["llm_config"]["model_endpoint"]) == ("fake/model", "http://fake.example/v1")
    assert [block["value"] for block in made["blocks"]] == ["Bob"]
    assert {tool["name"] for tool in made["tools"]} >= {"memory_insert", "memory_replace"}
    assert (made["tags"], made["secrets"][0]["value"]) == (["a", "b"], "v")
    assert (made["metadata"], made["timezone"]) == ({"k": [1, {"x": None}]}, "Europe/Berlin")
    read = (await client.get(f"/v1/agents/{made['id']}", params=ALL)).json()
    assert read == made


async def test_relations_come_only_when_asked_for(client: httpx.AsyncClient) -> None:
    made = await full_agent(client)
    path = f"/v1/agents/{made['id']}"

    async def loaded(**params: Any) -> set[str]:
        found = (await client.get(path, params=params)).json()
        assert found["memory"]["blocks"] == found["blocks"]
        return {name for name in RELATIONS if found[name]}

    assert await loaded() == set()
    assert await loaded(include="agent.tools") == {"tools"}
    assert await loaded(include=["agent.secrets", "agent.tags"]) == {"secrets", "tags"}
    assert await loaded(include="agent.blocks") == {"blocks", "tags"}
    assert await loaded(include_relationships=["memory", "tools"]) == {"blocks", "tags", "tools"}
    listed = (await client.get("/v1/agents/")).json()[0]
    assert not any(listed[name] for name in RELATIONS)


async def test_older_clients_get_everything(kelpie: Kelpie) -> None:
    async with client_of(kelpie, {"User-Agent": "curl/8.0"}) as old:
        made = await full_agent(old)
        for found in ((await old.get(f"/v1/agents/{made['id']}")).json(), (await old.get("/v1/agents/")).json()[0]):
            assert all(found[name] for name in RELATIONS)


async def test_update_then_read_back_changed(client: httpx.AsyncClient) -> None:
    made = await full_agent(client)
    path = f"/v1/agents/{made['id']}"
    answer = await client.patch(path, json={"name": "two", "tags": ["c"], "description": None, "secrets": {}})
    changed = answer.json()
    assert (changed["name"], changed["tags"], changed["secrets"]) == ("two", ["c"], [])
    assert [block["label"] for block in changed["blocks"]] == ["human"]
    assert (await client.get(path, params=ALL)).json() == changed
    assert (await client.patch(path, json={})).json()["name"] == "two"


async def test_delete_then_gone(client: httpx.AsyncClient) -> None:
    made = await make_agent(client)
    path = f"/v1/agents/{made['id']}"
    assert (await client.delete(path)).json() == {"message": f"Agent id={made['id']} successfully deleted"}
    assert (await client.delete(path)).status_code == 404
    assert (await client.get(path)).status_code == 404
    assert (await client.get("/v1/agents/count")).json() == 0


async def test_lists_are_pages_in_the_order_asked_for(client: httpx.AsyncClient) -> None:
    ids = [(await make_agent(client, name=f"agent {n}"))["id"] for n in range(4)]

    async def page(**params: Any) -> list[str]:
        return [agent["id"] for agent in (await client.get("/v1/agents/", params=params)).json()]

    assert await page() == ids[::-1]
    assert await page(order="asc", limit=2) == ids[:2]
    assert await page(ascending=True, limit=2) == ids[:2]
    assert await page(after=ids[1], order="asc") == ids[2:]
    assert await page(after=ids[1]) == ids[:1]
    assert await page(limit=0) == ids[::-1]
    assert await page(after="bogus", limit=1) == ids[3:]
    assert await page(name="agent 2") == ids[2:3]
    assert await page(query_text="AGENT") == ids[::-1]
    assert await page(identity_id="identity-x") == []
    assert (await client.get("/v1/agents/count")).json() == 4


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"limit": "abc"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"order": "up"}, "order"),
        ({"order_by": "bogus"}, "order_by"),
        ({"include": "agent.bogus"}, "include"),
        ({"last_stop_reason": "bogus"}, "last_stop_reason"),
    ],
)
async def test_bad_queries_are_422_and_name_the_parameter(
    client: httpx.AsyncClient, params: dict[str, str], named: str
) -> None:
    answer = await client.get("/v1/agents/", params=params)
    assert answer.status_code == 422
    assert f"('query', '{named}'" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("GET", "/core-memory"),
        ("GET", "/core-memory/blocks"),
        ("GET", "/tools"),
        ("GET", "/messages"),
        ("POST", "/messages"),
        ("POST", "/messages/stream"),
        ("PATCH", "/reset-messages"),
        ("POST", "/recompile"),
        ("POST", "/start"),
        ("POST", "/stop"),
        ("POST", "/restart"),
    ],
)
async def test_unknown_agents_are_404_and_bad_ids_422(client: httpx.AsyncClient, method: str, path: str) -> None:
    json = {"input": "hi"} if "messages" in path and method == "POST" else {}
    body = None if method in ("GET", "DELETE") else json
    answer = await client.request(method, f"/v1/agents/{UNKNOWN}{path}", json=body)
    assert (answer.status_code, set(answer.json())) == (404, {"detail", "code"}), answer.text
    bad = await client.request(method, f"/v1/agents/bad-id{path}", json=body)
    assert bad.status_code == 422
    assert bad.json()["examples"] == ["agent-123e4567-e89b-42d3-8456-426614174000"]
    assert bad.json()["trace_id"] == "" and "'agent_id'" in bad.json()["detail"]


@pytest.mark.parametrize("agent_id", [UNKNOWN.upper(), "agent-00000000-0000-1000-8000-000000000001", UNKNOWN + "%0A"])
async def test_ids_are_strict(client: httpx.AsyncClient, agent_id: str) -> None:
    assert (await client.get(f"/v1/agents/{agent_id}")).status_code == 422


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model": "nohandle"}, 400),
        ({"model": "fake/none"}, 404),
        ({"model": "nope/x"}, 404),
        ({"tools": ["ghost"]}, 400),
        ({"tool_ids": ["tool-00000000-0000-4000-8000-0000000000ff"]}, 400),
        ({"tool_ids": ["bogus"]}, 400),
        ({"name": "two\nlines"}, 400),
        ({"timezone": "Mars/Base"}, 400),
        ({"agent_type": "bogus"}, 422),
        ({"model": 5}, 422),
        ({"zzz": 1}, 200),
    ],
)
async def test_agents_that_cannot_be_made(client: httpx.AsyncClient, body: dict[str, Any], status: int) -> None:
    answer = await client.post("/v1/agents/", json=body)
    assert answer.status_code == status, answer.text
    assert (await client.get("/v1/agents/count")).json() == (1 if status == 200 else 0)


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"{bad json", "application/json"),
        (b"[]", "application/json"),
        (b'"str"', "application/json"),
        (b"null", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"", "application/json"),
        (b'{"metadata": ' + b'{"a":' * 500 + b"1" + b"}" * 501, "application/json"),
        (b'{"name": "\\ud800"}', "application/json"),
        (b'{"name": "x"}', "text/plain"),
        (b'{"name": "x"}', ""),
        (b"name=x", "application/x-www-form-urlencoded"),
        (b"--b\r\n\r\n--b--", "multipart/form-data; boundary=b"),
    ],
)
async def test_bodies_that_are_not_json_objects_are_422(
    client: httpx.AsyncClient, content: bytes, content_type: str
) -> None:
    answer = await client.post("/v1/agents/", content=content, headers={"Content-Type": content_type})
    assert answer.status_code == 422
    assert set(answer.json()) == {"trace_id", "detail", "message", "code"} and isinstance(answer.json()["detail"], str)
    assert (await client.get("/v1/agents/count")).json() == 0


async def test_nul_characters_do_not_reach_the_database(client: httpx.AsyncClient) -> None:
    made = await make_agent(client, name="a\0b", description="c\0", metadata={"k\0": "\0v"}, tags=["t\0"])
    assert (made["name"], made["description"], made["metadata"], made["tags"]) == ("ab", "c", {"k": "v"}, ["t"])


async def test_huge_numbers_are_refused_not_stored(client: httpx.AsyncClient) -> None:
    for body in (
        {"context_window_limit": 2**70},
        {"max_tokens": 2**63},
        {"memory_blocks": [{"label": "a", "limit": 2**63}]},
    ):
        assert (await client.post("/v1/agents/", json=body)).status_code == 422


async def test_start_stop_restart(client: httpx.AsyncClient, puppet: Puppet) -> None:
    made = await make_agent(client)
    path = f"/v1/agents/{made['id']}"
    assert made["kelpie_status"]["state"] == "unloaded"
    assert (await client.post(f"{path}/messages", json={"input": "hi"})).status_code == 200
    assert (await client.post(f"{path}/stop")).json()["state"] == "stopped"
    assert (await client.get(path)).json()["kelpie_status"]["state"] == "stopped"
    refused = await client.post(f"{path}/messages", json={"input": "hi"})
    assert refused.status_code == 409 and "detail" in refused.json()
    await client.post(f"{path}/start")
    assert (await client.post(f"{path}/messages", json={"input": "hi"})).status_code == 200
    assert (await client.post(f"{path}/restart")).json()["state"] == "loaded"
    assert len(puppet.asked) == 2


async def test_recompile_shows_what_the_prompt_is_now(client: httpx.AsyncClient) -> None:
    made = await full_agent(client)
    path = f"/v1/agents/{made['id']}"
    await client.patch(path, json={"system": "Be brief."})
    text = (await client.post(f"{path}/recompile", params={"dry_run": True})).json()
    assert "Be brief." in text and "Bob" in text
    assert (await client.post(f"{path}/system-prompt/recompile")).json().startswith("Be brief.")


async def test_reset_messages_empties_the_history(client: httpx.AsyncClient) -> None:
    made = await make_agent(client)
    path = f"/v1/agents/{made['id']}"
    await client.post(f"{path}/messages", json={"input": "hi"})
    assert len((await client.get(f"{path}/messages")).json()) == 3
    assert len((await client.patch(f"{path}/reset-messages", json={})).json()["message_ids"]) == 1
    kinds = [m["message_type"] for m in (await client.get(f"{path}/messages")).json()]
    assert kinds == ["system_message"]
    assert (await client.patch(f"{path}/reset-messages")).status_code == 200  # the body may be left out


@pytest.mark.parametrize(
    ("user", "status"), [("bad", 400), ("user-00000000-0000-4000-8000-00000000abcd", 200), ("", 200)]
)
async def test_the_user_header(client: httpx.AsyncClient, user: str, status: int) -> None:
    answer = await client.get("/v1/agents/count", headers={"user_id": user})
    assert answer.status_code == status
    if status == 400:
        assert "user-<uuid4>" in answer.json()["detail"]
