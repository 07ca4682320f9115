"""The second ways that Letta keeps for its own programs: twins of public routes, and what belongs to a deployment."""

from typing import Any

import httpx
from letta_client.types import AgentState, BlockResponse

from tests.server.rig import make_agent

IDS = {"template_id": "t", "base_template_id": "b", "deployment_id": "d1", "entity_id": "e"}
TEMPLATES = "/v1/_internal_templates"


async def made(client: httpx.AsyncClient, path: str, body: Any) -> Any:
    answer = await client.post(f"{TEMPLATES}/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_hidden_agents_are_counted_when_asked_for(client: httpx.AsyncClient) -> None:
    await make_agent(client)
    await make_agent(client, hidden=True)
    count = "/v1/_internal_agents/count"
    assert (await client.get(count)).json() == 1
    assert (await client.get(count, params={"exclude_hidden": False})).json() == 2


async def test_blocks_by_their_second_way(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client, memory_blocks=[{"label": "human", "value": "h"}])
    path = f"/v1/_internal_agents/{agent['id']}/core-memory/blocks/human"
    assert (await client.patch(path, json={"value": "new"})).json()["value"] == "new"
    block = (await client.post("/v1/_internal_blocks/", json={"label": "x", "value": "v"})).json()
    BlockResponse.model_validate(block)
    listed = (await client.get("/v1/_internal_blocks/", params={"label": "x"})).json()
    assert listed == [block] == (await client.get("/v1/blocks/", params={"label": "x"})).json()
    human = (await client.get("/v1/_internal_blocks/", params={"label": "human"})).json()[0]
    assert human["value"] == "new"
    carriers = (await client.get(f"/v1/_internal_blocks/{human['id']}/agents")).json()
    assert [carrier["id"] for carrier in carriers] == [agent["id"]]
    assert (await client.delete(f"/v1/_internal_blocks/{block['id']}")).json() is None
    assert (await client.get(f"/v1/blocks/{block['id']}")).status_code == 404


async def test_what_belongs_to_a_deployment(client: httpx.AsyncClient) -> None:
    agent = await made(client, "agents", {"name": "deployed", **IDS})
    AgentState.model_validate(agent)
    assert {name: agent[name] for name in IDS} == IDS
    block = await made(client, "blocks", {"label": "one", "value": "v", **IDS})
    assert {name: block[name] for name in IDS} == IDS
    batch = await made(client, "blocks/batch", [{"label": label, "value": "v", **IDS} for label in "abc"])
    assert [one["label"] for one in batch] == ["a", "b", "c"]
    group_ids = {name: IDS[name] for name in ("template_id", "base_template_id", "deployment_id")}
    group = await made(client, "groups", {"agent_ids": [agent["id"]], "description": "g", **group_ids})
    assert {name: group[name] for name in group_ids} == group_ids
    other = await made(client, "blocks", {"label": "other", "value": "v", **IDS, "deployment_id": "d2"})

    path = f"{TEMPLATES}/deployment/d1"
    found = (await client.get(path)).json()
    assert found["total_count"] == len(found["entities"]) == 6 and found["deployment_id"] == "d1"
    assert {one["id"] for one in found["entities"]} == {
        agent["id"],
        block["id"],
        group["id"],
        *(b["id"] for b in batch),
    }
    assert next(one for one in found["entities"] if one["type"] == "agent") == {
        "id": agent["id"],
        "type": "agent",
        "name": "deployed",
        "description": None,
        "entity_id": "e",
        "project_id": None,
    }
    only = (await client.get(path, params={"entity_types": ["agent", "group"]})).json()["entities"]
    assert [one["type"] for one in only] == ["agent", "group"]
    assert (await client.get(path, params={"entity_types": "ghost"})).status_code == 422

    gone = (await client.delete(path)).json()
    assert gone["deleted_agents"] == [agent["id"]] and gone["deleted_groups"] == [group["id"]]
    assert sorted(gone["deleted_blocks"]) == sorted([block["id"], *(one["id"] for one in batch)])
    assert (await client.get(path)).json()["entities"] == []
    assert (await client.get(f"/v1/agents/{agent['id']}")).status_code == 404
    assert (await client.get(f"/v1/blocks/{other['id']}")).status_code == 200
    assert (await client.delete(path)).json()["deleted_blocks"] == []


async def test_a_batch_is_made_whole_or_not_at_all(client: httpx.AsyncClient) -> None:
    good, bad = {"label": "a", "value": "v", **IDS}, {"label": "", "value": "v", **IDS}
    assert (await client.post(f"{TEMPLATES}/blocks/batch", json=[good, bad])).status_code == 400
    without = {name: value for name, value in good.items() if name != "deployment_id"}
    assert (await client.post(f"{TEMPLATES}/blocks", json=without)).status_code == 422
    assert (await client.get(f"{TEMPLATES}/deployment/d1")).json()["total_count"] == 0
