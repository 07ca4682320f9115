"""Sandbox configurations and their environment variables, over HTTP."""

from typing import Any

import httpx
import pytest

BASE = "/v1/sandbox-config"
LOCAL = {
    "sandbox_dir": "/tmp/x",
    "use_venv": True,
    "venv_name": "v",
    "pip_requirements": [{"name": "a", "version": "1"}],
}
E2B = {"timeout": 60, "template": "t", "pip_requirements": ["a"]}
MODAL = {"timeout": 5, "pip_requirements": ["a"], "npm_requirements": ["b"], "language": "typescript"}
KEYS = {
    "created_by_id",
    "last_updated_by_id",
    "created_at",
    "updated_at",
    "id",
    "organization_id",
    "type",
    "config",
}


async def make(client: httpx.AsyncClient, config: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post(f"{BASE}/", json={"config": config})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(("kind", "config"), [("local", LOCAL), ("e2b", E2B), ("modal", MODAL)])
async def test_a_configuration_from_making_to_removing(
    client: httpx.AsyncClient, kind: str, config: dict[str, Any]
) -> None:
    made = await make(client, config)
    assert set(made) == KEYS and (made["type"], made["config"]) == (kind, config)
    assert (await client.get(f"{BASE}/")).json() == [made]
    again = await make(client, config)
    assert again["id"] == made["id"], "one of a kind"
    path = f"{BASE}/{made['id']}"
    first = next(iter(config))
    changed = (
        await client.patch(
            path,
            json={
                "config": config | {first: config[first]},
            },
        )
    ).json()
    assert changed["config"] == config and changed["updated_at"] >= made["updated_at"]
    assert (await client.delete(path)).status_code == 204
    assert (await client.get(f"{BASE}/")).json() == []
    assert (
        (await client.delete(path)).status_code
        == 404
        == (await client.patch(path, json={"config": config})).status_code
    )


async def test_the_local_one_is_made_when_it_is_asked_for(client: httpx.AsyncClient) -> None:
    first = (await client.post(f"{BASE}/local/default")).json()
    assert first["config"] == {"sandbox_dir": None, "use_venv": False, "venv_name": "venv", "pip_requirements": []}
    assert (await client.post(f"{BASE}/local/default")).json() == first
    changed = (await client.post(f"{BASE}/local", json=LOCAL)).json()
    assert (changed["id"], changed["config"]) == (first["id"], LOCAL)
    assert (await client.post(f"{BASE}/local/default")).json() == changed
    assert (await client.patch(f"{BASE}/{first['id']}", json={"config": E2B})).status_code == 400
    assert (await client.get(f"{BASE}/", params={"sandbox_type": "e2b"})).json() == []
    await make(client, E2B)
    found = (await client.get(f"{BASE}/", params={"after": first["id"]})).json()
    assert [one["type"] for one in found] == ["e2b"]
    assert len((await client.get(f"{BASE}/", params={"limit": 1})).json()) == 1


async def test_variables(client: httpx.AsyncClient) -> None:
    config = await make(client, LOCAL)
    base = f"{BASE}/{config['id']}/environment-variable"
    made = (await client.post(base, json={"key": "A", "value": "1", "description": "d"})).json()
    assert (made["key"], made["value"], made["description"], made["sandbox_config_id"]) == ("A", "1", "d", config["id"])
    other = (await client.post(base, json={"key": "B", "value": ""})).json()
    assert (await client.get(base)).json() == [made, other]
    assert (await client.get(base, params={"after": made["id"]})).json() == [other]
    assert (await client.post(base, json={"key": "A", "value": "2"})).status_code == 409
    path = f"{BASE}/environment-variable/{made['id']}"
    changed = (await client.patch(path, json={"value": "2", "key": None})).json()
    assert changed == made | {"value": "2", "updated_at": changed["updated_at"]}
    assert (await client.patch(path, json={"key": "B"})).status_code == 409
    assert (await client.patch(path, json={})).json() == changed
    for body in ({"key": ""}, {"key": "a=b"}, {"key": "a b"}, {"value": "x" * 100_001}):
        assert (await client.patch(path, json=body)).status_code == 400
    assert (await client.post(base, json={"key": "C", "value": "1", "x": 1})).status_code == 422
    assert (await client.delete(path)).status_code == 204
    assert (await client.delete(path)).status_code == 404
    assert (await client.delete(f"{BASE}/{config['id']}")).status_code == 204
    assert (await client.get(base)).status_code == 404
    assert (await client.patch(f"{BASE}/environment-variable/{other['id']}", json={"value": "x"})).status_code == 404


@pytest.mark.parametrize("config", [{"x": 1}, {"timeout": 0}, {"use_venv": "maybe"}, None, [], {"timeout": 10**9}])
async def test_what_cannot_be_a_configuration_is_refused(client: httpx.AsyncClient, config: Any) -> None:
    assert (await client.post(f"{BASE}/", json={"config": config})).status_code == 422
    assert (await client.get(f"{BASE}/")).json() == []


async def test_what_has_no_engine_is_refused_with_a_sentence(client: httpx.AsyncClient) -> None:
    for path in ("e2b/default", "local/recreate-venv"):
        refused = await client.post(f"{BASE}/{path}")
        assert refused.status_code == 501 and len(refused.json()["detail"].split()) > 5
    assert (await client.get(f"{BASE}/")).json() == []
