"""Blocks, tools, models and the frame around them, over HTTP."""

import json
from typing import Any

import httpx
import pytest
from letta_client.types import BlockResponse, Model, Tool

from kelpie import __version__
from kelpie.app import Kelpie
from tests.server.description import document
from tests.server.rig import client_of, make_agent

SQUARE = '''def square(x: int) -> int:
    """Return x squared.

    Args:
        x (int): the number
    """
    return x * x
'''


async def make_block(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/blocks/", json={"label": "notes", "value": "v", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def make_tool(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/tools/", json={"source_code": SQUARE, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


# --- blocks -----------------------------------------------------------------------------------------------------------


async def test_a_block_from_making_to_removing(client: httpx.AsyncClient) -> None:
    made = await make_block(client, metadata={"m": 1}, tags=["t"], read_only=True, limit=5)
    BlockResponse.model_validate(made)
    path = f"/v1/blocks/{made['id']}"
    assert (await client.get(path)).json() == made
    changed = (await client.patch(path, json={"value": "w", "description": None})).json()
    assert changed == made | {"value": "w"} == (await client.get(path)).json()
    assert (await client.delete(path)).json() is None
    assert (await client.get(path)).status_code == 404 == (await client.delete(path)).status_code


async def test_block_lists(client: httpx.AsyncClient) -> None:
    ids = [(await make_block(client, label=label, value=label))["id"] for label in ("a", "b", "c")]
    await make_block(client, label="hid", hidden=True)

    async def found(**params: Any) -> list[str]:
        return [block["id"] for block in (await client.get("/v1/blocks/", params=params)).json()]

    assert await found() == ids
    assert await found(order="desc", limit=1) == ids[2:]
    assert await found(label="b") == ids[1:2] == await found(value_search="b")
    assert await found(after=ids[0]) == ids[1:]
    assert len(await found(show_hidden_blocks=True)) == 4
    assert await found(connected_to_agents_count_eq=[0]) == ids
    assert await found(identity_id="identity-1") == []
    assert (await client.get("/v1/blocks/count")).json() == 4
    assert (await client.get("/v1/blocks/", params={"label": "bad label!"})).status_code == 422


@pytest.mark.parametrize("root", ["core-memory/blocks", "blocks"])
async def test_the_blocks_of_an_agent(client: httpx.AsyncClient, root: str) -> None:
    agent = await make_agent(client, memory_blocks=[{"label": "human", "value": "h"}])
    base = f"/v1/agents/{agent['id']}/{root}"
    block = await make_block(client, label="system/notes")
    attached = (await client.patch(f"{base}/attach/{block['id']}")).json()
    assert {b["label"] for b in attached["blocks"]} == {"human", "system/notes"}
    assert [b["label"] for b in (await client.get(base)).json()] == ["system/notes", "human"]  # newest first
    assert [b["label"] for b in (await client.get(base, params={"order": "asc", "limit": 1})).json()] == ["human"]
    assert (await client.get(f"{base}/system%2Fnotes")).json()["id"] == block["id"]
    assert (await client.patch(f"{base}/human", json={"value": "new"})).json()["value"] == "new"
    assert (await client.get(f"{base}/human")).json()["value"] == "new"
    assert (await client.get(f"{base}/nope")).status_code == 404
    second = await make_block(client, label="human")
    assert (await client.patch(f"{base}/attach/{second['id']}")).status_code == 409
    carriers = (await client.get(f"/v1/blocks/{block['id']}/agents")).json()
    assert [a["id"] for a in carriers] == [agent["id"]] and carriers[0]["blocks"] == []
    detached = (await client.patch(f"{base}/detach/{block['id']}")).json()
    assert [b["label"] for b in detached["blocks"]] == ["human"]
    assert (await client.patch(f"{base}/detach/{block['id']}")).status_code == 404


# --- tools ------------------------------------------------------------------------------------------------------------


async def test_a_tool_from_registering_to_removing(client: httpx.AsyncClient) -> None:
    made = await make_tool(client, tags=["t"])
    Tool.model_validate(made)
    assert (made["name"], made["tool_type"], made["tags"]) == ("square", "custom", ["t"])
    assert made["json_schema"]["parameters"]["required"] == ["x"]
    again = (await client.put("/v1/tools/", json={"source_code": SQUARE, "return_char_limit": 7})).json()
    assert (again["id"], again["return_char_limit"]) == (made["id"], 7)
    path = f"/v1/tools/{made['id']}"
    assert (await client.patch(path, json={"description": "d", "tags": ["n"]})).json()["description"] == "d"
    assert (await client.get(path)).json()["tags"] == ["n"]
    assert (await client.delete(path)).json() is None
    assert (await client.get(path)).status_code == 404
    assert (await client.delete(path)).status_code == 400


async def test_tool_lists(client: httpx.AsyncClient) -> None:
    made = await make_tool(client)

    async def names(**params: Any) -> list[str]:
        return [tool["name"] for tool in (await client.get("/v1/tools/", params=params)).json()]

    assert await names(tool_types="custom") == ["square"] == await names(name="square")
    assert await names(names="square,nope") == ["square"] == await names(tool_ids=[made["id"]])
    assert await names(search="squ") == ["square"]
    assert "square" not in await names(return_only_letta_tools=True)
    assert "square" not in await names(exclude_tool_types=["custom"])
    assert (await client.get("/v1/tools/", params={"tool_types": "bogus"})).status_code == 400
    assert (await client.get("/v1/tools/count", params={"tool_types": "custom"})).json() == 1


async def test_base_tools_can_be_restored(client: httpx.AsyncClient) -> None:
    (tool,) = (await client.get("/v1/tools/", params={"name": "memory_insert"})).json()
    await client.delete(f"/v1/tools/{tool['id']}")
    restored = (await client.post("/v1/tools/add-base-tools")).json()
    assert "memory_insert" in {one["name"] for one in restored}


async def test_the_tools_of_an_agent(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    agent = await make_agent(client, include_base_tools=False)
    tool = await make_tool(client)
    base = f"/v1/agents/{agent['id']}/tools"
    for _ in range(2):
        assert (await client.patch(f"{base}/attach/{tool['id']}")).json() is None
    assert [one["name"] for one in (await client.get(base)).json()] == ["square"]
    async with client_of(kelpie, {"User-Agent": "curl/8.0"}) as old:
        state = (await old.patch(f"{base}/attach/{tool['id']}")).json()
        assert [one["name"] for one in state["tools"]] == ["square"]
    assert (await client.patch(f"{base}/detach/{tool['id']}")).json() is None
    assert (await client.get(base)).json() == []
    unknown = "tool-00000000-0000-4000-8000-0000000000ff"
    assert (await client.patch(f"{base}/attach/{unknown}")).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"source_code": SQUARE, "name": "zzz"}, 422),
        ({"source_code": "x = 1"}, 400),
        ({"source_code": ""}, 400),
        ({"source_code": "def memory_insert():\n    'x'"}, 409),
    ],
)
async def test_tools_that_cannot_be(client: httpx.AsyncClient, body: dict[str, Any], status: int) -> None:
    assert (await client.post("/v1/tools/", json=body)).status_code == status


@pytest.mark.parametrize("kind", ["block", "tool", "step", "message"])
async def test_bad_ids_show_an_example(client: httpx.AsyncClient, kind: str) -> None:
    answer = await client.get(f"/v1/{kind}s/bad-id")
    assert answer.status_code == 422
    assert answer.json()["examples"] == [f"{kind}-123e4567-e89b-42d3-8456-426614174000"]
    assert (await client.get(f"/v1/{kind}s/{kind}-00000000-0000-4000-8000-0000000000ff")).status_code == 404


# --- the rest ---------------------------------------------------------------------------------------------------------


async def test_models(client: httpx.AsyncClient) -> None:
    (model,) = (await client.get("/v1/models/")).json()
    Model.model_validate(model)
    assert (model["handle"], model["max_context_window"]) == ("fake/model", 100_000)
    (embedding,) = (await client.get("/v1/models/embedding")).json()
    assert (embedding["handle"], embedding["embedding_dim"]) == ("fake/embed", 8)
    assert (await client.get("/v1/models/", params={"provider_name": "other"})).json() == []
    assert (await client.get("/v1/models/", params={"provider_category": "byok"})).json() == []


@pytest.mark.parametrize("path", ["/v1/health/", "/v1/ready/", "/v1/ready", "/latest/health/"])
async def test_health(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).json() == {"version": "0.16.8", "kelpie_version": __version__, "status": "ok"}


async def test_latest_is_v1(client: httpx.AsyncClient) -> None:
    made = await make_agent(client)
    assert [a["id"] for a in (await client.get("/latest/agents/", params={"limit": 1})).json()] == [made["id"]]


@pytest.mark.parametrize("root", ["agents", "blocks", "tools", "runs", "steps", "health"])
async def test_roots_without_their_slash_redirect(client: httpx.AsyncClient, root: str) -> None:
    answer = await client.get(f"/v1/{root}?limit=1")
    assert answer.status_code == 307
    assert answer.headers["location"] == f"http://127.0.0.1:8283/v1/{root}/?limit=1"


async def test_unknown_paths_and_methods(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/nope")
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found", "code": "route_unknown"})
    answer = await client.delete("/v1/health/")
    assert (answer.status_code, answer.json()) == (405, {"detail": "Method Not Allowed", "code": "method_not_allowed"})


async def test_the_schema_tells_every_operation_what_it_does(kelpie: Kelpie) -> None:
    async with client_of(kelpie, describes_itself=True) as client:
        schema = (await client.get("/openapi.json")).json()
    assert schema == json.loads(json.dumps(document())), "the tests' document is the one that servers give"
    assert not any(path.startswith("/latest") for path in schema["paths"])
    operations = [(path, o) for path, ops in schema["paths"].items() for o in ops.values()]
    assert len(operations) > 50
    assert all(o["summary"] and o["tags"] for _, o in operations)
    create = schema["paths"]["/v1/agents/"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields = schema["components"]["schemas"][create["$ref"].rpartition("/")[2]]["properties"]
    assert {"model", "memory_blocks", "tools", "system"} <= set(fields)
