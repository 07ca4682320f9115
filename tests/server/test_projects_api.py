"""Projects over HTTP: stored and read back, with agents in several of them, and keys that see nothing else."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.agent.resources import projects as resource
from kelpie.agent.resources.agents import Agents
from kelpie.core.errors import Conflict
from kelpie.core.ids import AgentId
from tests.server.rig import client_of, make_agent, open_rig

PASSWORD = "a-password-for-tests"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with open_rig(tmp_path, password=PASSWORD) as (kelpie, _), client_of(kelpie) as opened:
        opened.headers["Authorization"] = f"Bearer {PASSWORD}"
        yield opened


async def make(client: httpx.AsyncClient, name: str = "garden", **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/projects", json={"name": name} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def names(client: httpx.AsyncClient, **query: Any) -> list[str]:
    return [each["name"] for each in (await client.get("/v1/projects", params=query)).json()]


async def test_a_project_is_read_back_changed_and_deleted(client: httpx.AsyncClient) -> None:
    made = await make(client, description="Plants.", tags=["b", "a", "a"], owner="ada")
    assert (made["tags"], made["owner"]) == (["a", "b"], "ada")
    path = f"/v1/projects/{made['id']}"
    assert (await client.get(path)).json() == made | {"agent_count": 0, "agents": []}
    after = (await client.patch(path, json={"name": "park", "tags": ["c"], "description": None})).json()
    assert (after["name"], after["tags"], after["description"], after["owner"]) == ("park", ["c"], None, "ada")
    assert (await client.get(path)).json()["name"] == "park"
    assert (await client.delete(path)).json() == {"success": True, "results": []}
    assert (await client.get(path)).status_code == 404
    assert (await client.delete(path)).status_code == 404


async def test_projects_are_filtered_by_owner_tag_and_name_and_paged(client: httpx.AsyncClient) -> None:
    for number, owner in enumerate(("ada", "bob", "ada")):
        await make(client, f"p{number}", owner=owner, tags=["even"] if number % 2 == 0 else ["odd"])
    assert await names(client, owner="ada", order="asc") == ["p0", "p2"]
    assert await names(client, tag="odd") == ["p1"]
    assert await names(client, tag="even", owner="bob") == []
    assert await names(client, name="p1") == ["p1"]
    first = (await client.get("/v1/projects", params={"limit": 2, "order": "asc"})).json()
    rest = await names(client, limit=2, order="asc", after=first[-1]["id"])
    assert [each["name"] for each in first] + rest == ["p0", "p1", "p2"]


async def test_an_agent_is_in_several_projects_and_filters_match_any(client: httpx.AsyncClient) -> None:
    home, other = await make(client, "home"), await make(client, "other")
    ada, bob = await make_agent(client, name="ada", project_id=home["id"]), await make_agent(client, name="bob")
    path = f"/v1/projects/{other['id']}/agents"
    for new in (True, False):  # adding twice changes nothing
        added = await client.post(path, json={"agent_ids": [ada["id"], bob["id"]]})
        assert [each["added"] for each in added.json()["results"]] == [new, new]
    assert [each["name"] for each in (await client.get(path, params={"order": "asc"})).json()] == ["ada", "bob"]
    for project, found in ((home, {"ada"}), (other, {"ada", "bob"})):
        listed = (await client.get("/v1/agents/", params={"project_id": project["id"]})).json()
        assert {each["name"] for each in listed} == found
        details = (await client.get(f"/v1/projects/{project['id']}")).json()
        assert (details["agent_count"], {each["name"] for each in details["agents"]}) == (len(found), found)
    assert (await client.get(f"/v1/agents/{ada['id']}")).json()["project_id"] == home["id"]
    assert (await client.delete(f"{path}/{ada['id']}")).json() == {"success": True}
    assert (await client.delete(f"{path}/{ada['id']}")).status_code == 404
    assert (await client.delete(f"/v1/projects/{home['id']}/agents/{ada['id']}")).status_code == 200
    assert (await client.get(f"/v1/agents/{ada['id']}")).json()["project_id"] is None


async def test_each_agent_of_a_request_is_reported(client: httpx.AsyncClient) -> None:
    project, agent = await make(client), await make_agent(client)
    ghost = "agent-00000000-0000-4000-8000-00000000dead"
    answer = await client.post(f"/v1/projects/{project['id']}/agents", json={"agent_ids": [agent["id"], ghost]})
    assert answer.status_code == 207
    assert [each["status"] for each in answer.json()["results"]] == [200, 404]
    assert (await client.get(f"/v1/projects/{project['id']}")).json()["agent_count"] == 1


async def test_deleting_a_project_keeps_its_agents_unless_it_is_confirmed(client: httpx.AsyncClient) -> None:
    project = await make(client)
    agent = await make_agent(client, project_id=project["id"])
    path = f"/v1/projects/{project['id']}"
    refused = await client.delete(path, params={"delete_agents": "true"})
    assert refused.status_code == 400 and "confirm" in refused.text
    assert (await client.delete(path)).status_code == 200
    assert (await client.get(f"/v1/agents/{agent['id']}")).json()["project_id"] is None
    again = await make(client)
    await client.post(f"/v1/projects/{again['id']}/agents", json={"agent_id": agent["id"]})
    gone = await client.delete(f"/v1/projects/{again['id']}", params={"delete_agents": "true", "confirm": "garden"})
    assert gone.json() == {"success": True, "results": [{"agent_id": agent["id"], "deleted": True, "status": 200}]}
    assert (await client.get(f"/v1/agents/{agent['id']}")).status_code == 404


async def test_a_project_is_deleted_with_more_agents_than_it_shows(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "SHOWN_MAX", 2)
    project = await make(client)
    ids = [(await make_agent(client, name=f"a{n}", project_id=project["id"]))["id"] for n in range(4)]
    path = f"/v1/projects/{project['id']}"
    assert len((await client.get(path)).json()["agents"]) == 2
    gone = await client.delete(path, params={"delete_agents": "true", "confirm": project["name"]})
    assert sorted(each["agent_id"] for each in gone.json()["results"]) == sorted(ids)
    assert (await client.get("/v1/agents/")).json() == []


async def test_a_key_of_a_project_sees_its_agents_and_nothing_else(client: httpx.AsyncClient) -> None:
    mine, theirs = await make(client, "mine"), await make(client, "theirs")
    ada = await make_agent(client, name="ada", project_id=mine["id"])
    bob = await make_agent(client, name="bob", project_id=theirs["id"])
    key = (await client.post("/v1/kelpie/keys", json={"name": "k", "project_ids": [mine["id"]]})).json()
    assert key["project_ids"] == [mine["id"]] and key["agent_ids"] is None
    as_key = {"Authorization": f"Bearer {key['key']}"}

    async def seen() -> list[str]:
        return [each["name"] for each in (await client.get("/v1/agents/", headers=as_key)).json()]

    assert await seen() == ["ada"]
    assert (await client.get(f"/v1/agents/{ada['id']}", headers=as_key)).status_code == 200
    assert (await client.get(f"/v1/projects/{mine['id']}", headers=as_key)).json()["agent_count"] == 1
    for path in (f"/v1/agents/{bob['id']}", f"/v1/projects/{theirs['id']}", "/v1/projects", "/v1/blocks/"):
        assert (await client.get(path, headers=as_key)).status_code == 403, path
    answer = await client.patch(f"/v1/projects/{mine['id']}", json={"name": "x"}, headers=as_key)
    assert answer.status_code == 403
    # Agents that join or leave are seen and hidden at once.
    await client.post(f"/v1/projects/{mine['id']}/agents", json={"agent_id": bob["id"]})
    assert sorted(await seen()) == ["ada", "bob"]
    await client.patch(f"/v1/agents/{ada['id']}", json={"project_id": theirs["id"]})
    assert await seen() == ["bob"]
    await client.delete(f"/v1/projects/{mine['id']}")
    assert await seen() == []


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "name"),
        ({"name": ""}, 422, "name"),
        ({"name": " "}, 400, "name"),
        ({"name": "a\nb"}, 400, "name"),
        ({"name": "x", "tags": [""]}, 400, "tags"),
        ({"name": "x", "tags": [str(n) for n in range(51)]}, 400, "tags"),
        ({"name": "taken"}, 409, "taken"),
    ],
)
async def test_a_wrong_project_is_refused(
    client: httpx.AsyncClient, body: dict[str, Any], status: int, field: str
) -> None:
    await make(client, "taken")
    answer = await client.post("/v1/projects", json=body)
    assert answer.status_code == status and field in answer.text, answer.text
    assert await names(client) == ["taken"]


async def test_keys_name_projects_that_exist(client: httpx.AsyncClient) -> None:
    ghost = "project-00000000-0000-4000-8000-00000000dead"
    answer = await client.post("/v1/kelpie/keys", json={"name": "k", "project_ids": [ghost]})
    assert answer.status_code == 404 and ghost in answer.text


async def test_one_removal_takes_an_agent_out_that_is_at_home_and_was_added(client: httpx.AsyncClient) -> None:
    project = await make(client)
    path = f"/v1/projects/{project['id']}"
    agent = await make_agent(client, name="ada", project_id=project["id"])
    key = (await client.post("/v1/kelpie/keys", json={"name": "k", "project_ids": [project["id"]]})).json()["key"]
    as_key = {"Authorization": f"Bearer {key}"}
    for first in ("home", "added"):
        if first == "added":
            await client.post(f"{path}/agents", json={"agent_id": agent["id"]})
            await client.patch(f"/v1/agents/{agent['id']}", json={"project_id": project["id"]})
        else:
            await client.post(f"{path}/agents", json={"agent_id": agent["id"]})
        details = (await client.get(path)).json()
        assert details["agents"] == [{"id": agent["id"], "name": "ada", "home": True}]
        assert (await client.get(f"/v1/agents/{agent['id']}", headers=as_key)).status_code == 200
        assert (await client.delete(f"{path}/agents/{agent['id']}")).status_code == 200
        assert (await client.get(path)).json()["agent_count"] == 0
        assert (await client.get(f"/v1/agents/{agent['id']}", headers=as_key)).status_code == 403
        assert (await client.get("/v1/agents/", headers=as_key)).json() == []
        assert (await client.delete(f"{path}/agents/{agent['id']}")).status_code == 404


async def test_names_of_projects_stay_unique_and_are_free_again(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await make(client, "one"), await make(client, "two")
    path = f"/v1/projects/{second['id']}"
    taken = await client.patch(path, json={"name": "one"})
    assert taken.status_code == 409 and "already a project" in taken.text
    assert (await client.patch(path, json={"name": "two", "tags": ["b", "a", "b"]})).json()["tags"] == ["a", "b"]
    kept = (await client.patch(path, json={"description": "d"})).json()
    assert (kept["name"], kept["tags"], kept["description"]) == ("two", ["a", "b"], "d")
    assert (await client.delete(f"/v1/projects/{first['id']}")).status_code == 200
    assert (await client.patch(path, json={"name": "one"})).json()["name"] == "one"
    monkeypatch.setattr(resource, "PROJECTS_MAX", 1)
    many = await client.post("/v1/projects", json={"name": "three"})
    assert many.status_code == 409 and "1 projects" in many.text


async def test_a_project_stays_when_one_of_its_agents_cannot_be_deleted(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = await make(client)
    path = f"/v1/projects/{project['id']}"
    ada, bob = [await make_agent(client, name=name, project_id=project["id"]) for name in ("ada", "bob")]
    original = Agents.delete

    async def delete(self: Agents, agent_id: AgentId) -> None:
        if agent_id == ada["id"]:
            raise Conflict("not now")
        await original(self, agent_id)

    with monkeypatch.context() as patch:
        patch.setattr(Agents, "delete", delete)
        answer = await client.delete(path, params={"delete_agents": "true", "confirm": "garden"})
    assert answer.status_code == 207
    assert [(each["agent_id"], each["status"]) for each in answer.json()["results"]] == [
        (ada["id"], 409),
        (bob["id"], 200),
    ]
    assert (await client.get(path)).json()["agents"] == [{"id": ada["id"], "name": "ada", "home": True}]
    again = await client.delete(path, params={"delete_agents": "true", "confirm": "garden"})
    assert again.status_code == 200 and (await client.get(f"/v1/agents/{ada['id']}")).status_code == 404
    assert (await client.get(path)).status_code == 404


async def test_projects_of_other_organizations_are_unknown(client: httpx.AsyncClient) -> None:
    project, agent = await make(client), await make_agent(client)
    organization = (await client.post("/v1/admin/orgs/", json={"name": "other"})).json()
    account = {"name": "u", "organization_id": organization["id"]}
    stranger = {"user_id": (await client.post("/v1/admin/users/", json=account)).json()["id"]}
    path = f"/v1/projects/{project['id']}"
    theirs = (await client.post("/v1/projects", json={"name": "garden"}, headers=stranger)).json()
    for method, each, body in (
        ("GET", path, None),
        ("PATCH", path, {"name": "x"}),
        ("DELETE", path, None),
        ("POST", f"{path}/agents", {"agent_id": agent["id"]}),
        ("DELETE", f"{path}/agents/{agent['id']}", None),
    ):
        assert (await client.request(method, each, json=body, headers=stranger)).status_code == 404, (method, each)
    added = await client.post(
        f"/v1/projects/{theirs['id']}/agents", json={"agent_ids": [agent["id"]]}, headers=stranger
    )
    assert [each["status"] for each in added.json()["results"]] == [404]
    assert (await client.get(path)).json()["agent_count"] == 0
    assert [each["id"] for each in (await client.get("/v1/projects", headers=stranger)).json()] == [theirs["id"]]
