"""Working memory over HTTP: every route, hostile keys, and what is refused with which words."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from kelpie.app import Kelpie
from tests.server.rig import Puppet, called, client_of, make_agent, open_rig, said


def path(agent: dict[str, Any], key: str | None = None) -> str:
    return f"/v1/agents/{agent['id']}/working-memory" + ("" if key is None else f"/{quote(key, safe='')}")


async def asked(client: httpx.AsyncClient, method: str, url: str, body: Any = None, **query: Any) -> Any:
    answer = await client.request(method, url, json=body, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


HOSTILE = ["a/b", "a b", "ключ/✓", "%2e%2e", "q?x=1#y", "'; DROP TABLE agents;--", "👩‍🚀", "a//b/", "é", "e\u0301", "+"]


async def test_every_key_is_its_own(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client)
    for number, key in enumerate(HOSTILE):
        made = await asked(client, "PUT", path(agent, key), {"value": number})
        assert (made["key"], made["value"], made["expires_at"]) == (key, number, None)
    for number, key in enumerate(HOSTILE):
        assert (await asked(client, "GET", path(agent, key)))["value"] == number
    listed = await asked(client, "GET", path(agent))
    assert [entry["key"] for entry in listed] == sorted(HOSTILE)
    assert (await asked(client, "DELETE", path(agent, "a/b")))["key"] == "a/b"
    assert (await asked(client, "DELETE", path(agent)))["deleted"] == len(HOSTILE) - 1
    assert await asked(client, "GET", path(agent)) == []


async def test_set_change_and_read_back(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client)
    made = await asked(client, "PUT", path(agent, "n"), {"value": 1, "ttl_seconds": 3600, "if_version": 0})
    assert made["version"] == 1 and made["created_at"] == made["updated_at"] < made["expires_at"]
    more = await asked(client, "PATCH", path(agent, "n"), {"increment": 2, "if_version": 1})
    assert (more["value"], more["expires_at"]) == (3, made["expires_at"])
    assert (await asked(client, "PATCH", path(agent, "n"), {"ttl_seconds": None}))["expires_at"] is None
    assert (await asked(client, "PATCH", path(agent, "l"), {"append": None}))["value"] == [None]
    assert (await asked(client, "PATCH", path(agent, "o"), {"merge": {"a": {"b": 1}}}))["value"] == {"a": {"b": 1}}
    times = {"updated_after": made["created_at"], "order_by": "updated_at", "order": "desc", "limit": 2}
    assert [entry["key"] for entry in await asked(client, "GET", path(agent), **times)] == ["o", "l"]
    after = {"order_by": "updated_at", "order": "desc", "after": "l"}
    assert [entry["key"] for entry in await asked(client, "GET", path(agent), **after)] == ["n"]
    assert [entry["key"] for entry in await asked(client, "GET", path(agent), prefix="l")] == ["l"]


@pytest.mark.parametrize(
    ("method", "key", "body", "status", "told"),
    [
        ("PUT", "k", {}, 422, "value"),
        ("PUT", "k", {"value": 1, "ttl": 5}, 422, "ttl"),
        ("PUT", "k", {"value": 1, "ttl_seconds": 0}, 400, "ttl_seconds: must be more than 0"),
        ("PUT", "k", {"value": 1, "ttl_seconds": 1e300}, 400, "ttl_seconds"),
        ("PUT", "k", {"value": "x" * 70_000}, 400, "value: has 70002 bytes"),
        ("PUT", "x" * 257, {"value": 1}, 400, "key: must have 1 to 256"),
        ("PUT", "a\tb", {"value": 1}, 400, "key: must be printable"),
        ("PUT", "", {"value": 1}, 400, "key: must have 1"),
        ("PUT", "there", {"value": 1, "if_version": 0}, 409, "has version 1, but you expected version 0"),
        ("PUT", "there", {"value": 1, "if_version": -1}, 422, "if_version"),
        ("PATCH", "there", {"append": 1}, 400, "append: needs a list"),
        ("PATCH", "there", {"increment": 1, "merge": {}}, 400, "one change at a time"),
        ("PATCH", "there", {}, 400, "has no change"),
        ("PATCH", "there", {"increment": None}, 400, "must not be null"),
        ("PATCH", "there", {"increment": "many"}, 422, "increment"),
        ("PATCH", "gone", {"ttl_seconds": 5}, 404, "gone"),
        ("GET", "gone", None, 404, "gone"),
        ("DELETE", "gone", None, 404, "gone"),
    ],
)
async def test_what_is_refused_says_why_and_changes_nothing(
    client: httpx.AsyncClient, method: str, key: str, body: Any, status: int, told: str
) -> None:
    agent = await make_agent(client)
    before = await asked(client, "PUT", path(agent, "there"), {"value": "text"})
    answer = await client.request(method, path(agent, key), json=body)
    assert (answer.status_code, told in answer.json()["detail"]) == (status, True), answer.text
    assert await asked(client, "GET", path(agent)) == [before]


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 1001}, {"order_by": "value"}, {"updated_after": "soon"}, {"order": "up"}]
)
async def test_a_list_that_cannot_be(client: httpx.AsyncClient, query: dict[str, Any]) -> None:
    agent = await make_agent(client)
    assert (await client.get(path(agent), params=query)).status_code == 422


async def test_it_survives_a_restart_and_goes_with_its_agent(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as (kelpie, _), client_of(kelpie) as client:
        agent = await make_agent(client)
        made = await asked(client, "PUT", path(agent, "k"), {"value": {"a": 1}, "ttl_seconds": 999})
    async with open_rig(tmp_path) as (kelpie, _), client_of(kelpie) as client:
        assert await asked(client, "GET", path(agent, "k")) == made
        assert (await client.delete(f"/v1/agents/{agent['id']}")).status_code == 200
        assert (await client.get(path(agent, "k"))).status_code == 404


async def test_an_agent_uses_its_tools_in_a_turn(client: httpx.AsyncClient, kelpie: Kelpie, puppet: Puppet) -> None:
    agent = await make_agent(client, tools=["working_memory_set", "working_memory_update", "working_memory_get"])
    puppet.script.extend(
        [
            called("working_memory_set", '{"key": "n", "value": 40}', "c1"),
            called("working_memory_update", '{"key": "n", "increment": 2}', "c2"),
            called("working_memory_get", '{"key": "missing"}', "c3"),
            said("done"),
        ]
    )
    turn = await asked(client, "POST", f"/v1/agents/{agent['id']}/messages", {"input": "count"})
    returns = [each for each in turn["messages"] if each["message_type"] == "tool_return_message"]
    assert [each["status"] for each in returns] == ["success", "success", "error"]
    entry = await asked(client, "GET", path(agent, "n"))
    assert (entry["value"], entry["version"]) == (42, 2)


async def test_the_settings_bind_tools_too(tmp_path: Path) -> None:
    async with (
        open_rig(tmp_path, working_memory_entries_max=1) as (kelpie, puppet),
        client_of(kelpie) as client,
    ):
        agent = await make_agent(client, tools=["working_memory_set"])
        puppet.script.extend(
            [
                called("working_memory_set", '{"key": "a", "value": 1}', "c1"),
                called("working_memory_set", '{"key": "b", "value": 1}', "c2"),
            ]
        )
        turn = await asked(client, "POST", f"/v1/agents/{agent['id']}/messages", {"input": "two"})
        returns = [each for each in turn["messages"] if each["message_type"] == "tool_return_message"]
        assert "the limit is 1 entries" in returns[1]["tool_return"]
        assert [entry["key"] for entry in await asked(client, "GET", path(agent))] == ["a"]
