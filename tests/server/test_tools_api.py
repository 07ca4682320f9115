"""Tools over HTTP: every field, every filter, schemas from source, searching, approval; and that others see nothing."""

from typing import Any

import httpx
import pytest
from letta_client.types import Tool
from letta_client.types.tool_search_result import ToolSearchResult

from kelpie.app import Kelpie
from tests.server.rig import SDK_HEADERS, client_of, make_agent

BASE = "/v1/tools"
ALL: dict[str, Any] = {
    "source_type": "python",
    "description": "says it",
    "tags": ["b", "a"],
    "args_json_schema": {"type": "object", "properties": {"x": {"type": "integer"}}},
    "return_char_limit": 123,
    "pip_requirements": [{"name": "numpy", "version": "2.0"}, {"name": "rich", "version": None}],
    "npm_requirements": [{"name": "left-pad", "version": None}],
    "default_requires_approval": True,
    "enable_parallel_execution": True,
}


def source(name: str, remark: str = "Does it.", parameter: str = "x: int") -> str:
    return (
        f'def {name}({parameter}) -> int:\n    """{remark}\n\n    Args:\n        x: the number\n    """\n    return 1\n'
    )


async def make(client: httpx.AsyncClient, name: str, **fields: Any) -> dict[str, Any]:
    answer = await client.post(f"{BASE}/", json={"source_code": source(name), **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_every_field_comes_back(client: httpx.AsyncClient) -> None:
    made = await make(client, "one", **ALL)
    Tool.model_validate(made)
    assert {name: made[name] for name in ALL} == ALL
    assert made["json_schema"]["parameters"] == ALL["args_json_schema"]
    assert (await client.get(f"{BASE}/{made['id']}")).json() == made
    changes = {
        "description": "new",
        "tags": ["c"],
        "return_char_limit": 9,
        "pip_requirements": [],
        "default_requires_approval": False,
        "enable_parallel_execution": False,
    }
    changed = (await client.patch(f"{BASE}/{made['id']}", json=changes)).json()
    assert {name: changed[name] for name in changes} == changes
    assert changed["metadata_"]["tool_hash"] != made["metadata_"]["tool_hash"], "other packages, another environment"
    assert (await client.get(f"{BASE}/{made['id']}")).json() == changed


async def test_the_fingerprint_follows_what_runs(client: httpx.AsyncClient) -> None:
    made = await make(client, "one")
    path = f"{BASE}/{made['id']}"
    noted = (await client.patch(path, json={"metadata_": {"mine": 1}, "description": "x"})).json()
    assert noted["metadata_"] == {"mine": 1, "tool_hash": made["metadata_"]["tool_hash"]}
    changed = (await client.patch(path, json={"source_code": source("one", "Does more.")})).json()
    assert changed["metadata_"]["mine"] == 1
    assert changed["metadata_"]["tool_hash"] != made["metadata_"]["tool_hash"]
    assert (await make(client, "one"))["metadata_"]["tool_hash"] == made["metadata_"]["tool_hash"]


async def test_lists_and_counts(client: httpx.AsyncClient) -> None:
    made = [await make(client, name) for name in ("alpha", "beta", "gamma")]
    ids = [tool["id"] for tool in made]
    builtins = (await client.get(f"{BASE}/count", params={"return_only_letta_tools": True})).json()

    async def found(**params: Any) -> list[str]:
        answer = (await client.get(f"{BASE}/", params=params)).json()
        if not {"limit", "after", "before"} & set(params):
            assert (await client.get(f"{BASE}/count", params=params)).json() == len(answer)
        return [tool["name"] for tool in answer]

    assert await found(tool_types="custom") == ["gamma", "beta", "alpha"]
    assert await found(tool_types="custom", order="asc") == ["alpha", "beta", "gamma"]
    assert await found(names=["alpha", "beta", "nope"]) == ["beta", "alpha"] == await found(names="alpha,beta")
    assert await found(tool_ids=ids[:1]) == ["alpha"] == await found(name="alpha")
    assert await found(search="AMM") == ["gamma"] and await found(search="%") == []
    assert await found(name="alp") == []
    assert await found(limit=1) == ["gamma"] and await found(after=ids[2], limit=1) == ["beta"]
    assert await found(before=ids[1], limit=5) == ["gamma"]
    assert await found(order="asc", after=ids[0], limit=1) == ["beta"]
    assert len(await found(return_only_letta_tools=True)) == builtins
    assert "alpha" in await found(exclude_tool_types=["letta_core", "letta_memory_core"])
    assert await found(exclude_tool_types="custom", tool_types="custom") == []
    assert (await client.get(f"{BASE}/count", params={"exclude_letta_tools": True})).json() == 3
    assert (await client.get(f"{BASE}/count")).json() == builtins + 3
    for bad in ({"tool_types": "bogus"}, {"exclude_tool_types": ["custom", "bogus"]}):
        assert (await client.get(f"{BASE}/", params=bad)).status_code == 400


async def test_a_project_sees_its_own_tools_and_those_of_none(client: httpx.AsyncClient) -> None:
    mine = await client.post(f"{BASE}/", json={"source_code": source("mine")}, headers={"X-Project-Id": "p1"})
    assert mine.json()["project_id"] == "p1"
    assert (await make(client, "nobodys"))["project_id"] is None

    async def found(headers: dict[str, str]) -> set[str]:
        listed = (await client.get(f"{BASE}/", params={"tool_types": "custom"}, headers=headers)).json()
        return {tool["name"] for tool in listed}

    assert await found({}) == {"mine", "nobodys"} == await found({"X-Project-Id": "p1"})
    assert await found({"X-Project-Id": "p2"}) == {"nobodys"}


async def test_schemas_from_source(client: httpx.AsyncClient) -> None:
    code = "class Item(BaseModel):\n    name: str\n\n" + source("f", parameter="x: list[Item] | None = None")
    found = (await client.post(f"{BASE}/generate-schema", json={"code": code})).json()
    item = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    assert found["parameters"] == {
        "type": "object",
        "properties": {"x": {"type": "array", "items": item, "description": "the number"}},
        "required": [],
    }
    typescript = {"code": "/** Adds. */ export function add(a: number, b?: number) {}", "source_type": "typescript"}
    assert (await client.post(f"{BASE}/generate-schema", json=typescript)).json() == {
        "name": "add",
        "description": "Adds.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a"],
        },
    }
    for bad in ({"code": "x=1"}, {"code": "x", "source_type": "typescript"}, {"code": "x", "source_type": "cobol"}):
        refused = await client.post(f"{BASE}/generate-schema", json=bad)
        assert "source_code" not in refused.text, "that field is called `code` here"
        assert refused.status_code == 400 and len(refused.json()["detail"].split()) > 3
    assert (await client.get(f"{BASE}/", params={"tool_types": "custom"})).json() == [], "nothing is stored"


async def test_an_async_tool_can_be_registered(client: httpx.AsyncClient) -> None:
    made = await client.post(f"{BASE}/", json={"source_code": f"async {source('later')}"})
    assert made.status_code == 200 and made.json()["name"] == "later"


async def test_searching_by_words(client: httpx.AsyncClient) -> None:
    await make(client, "send_postcard", description="Write a greeting to a friend", tags=["mail"])
    await make(client, "weather", description="The forecast for a friend's town")
    await make(client, "unrelated", description="Nothing of the kind")

    async def found(**body: Any) -> list[str]:
        answer = await client.post(f"{BASE}/search", json=body)
        assert answer.status_code == 200, answer.text
        for number, item in enumerate(answer.json(), 1):
            ToolSearchResult.model_validate(item)
            assert item["fts_rank"] in (number, None) and item["vector_rank"] is None
        return [item["tool"]["name"] for item in answer.json()]

    assert await found(query="postcard greeting") == ["send_postcard"]
    assert set(await found(query="FRIEND", search_mode="fts")) == {"send_postcard", "weather"}
    assert await found(query="forec") == ["weather"], "the beginning of a word is enough"
    assert await found(query="friend", tags=["mail"]) == ["send_postcard"]
    assert await found(query="friend", tool_types=["letta_core"]) == []
    assert await found(query="friend", limit=1) and await found(query="?!") == [] == await found(query="zzz")
    assert (await found(tool_types=["custom"]))[:1] == ["unrelated"], "without words, the newest first"
    assert await found(query="PostCard") == ["send_postcard"] == await found(query="greetings", limit=1)
    assert await found(query="card", search_mode="fts") == ["send_postcard"], "a part of the name is enough too"
    by_words = await client.post(f"{BASE}/search", json={"query": "friend", "search_mode": "vector"})
    assert by_words.headers["x-kelpie-search-mode"] == "fts" and len(by_words.json()) == 2
    assert "no embedding model" in by_words.headers["x-kelpie-search-note"]
    for bad in ({"limit": 0}, {"limit": 101}, {"x": 1}):
        assert (await client.post(f"{BASE}/search", json=bad)).status_code == 422


async def test_a_tool_is_found_as_it_is_now(client: httpx.AsyncClient) -> None:
    tool = await make(client, "lamp", description="Lights the hall", tags=["home"])

    async def found(**body: Any) -> list[str]:
        return [each["tool"]["name"] for each in (await client.post(f"{BASE}/search", json=body)).json()]

    assert await found(query="hall") == ["lamp"] == await found(query="lights", tags=["home", "x"])
    await client.patch(f"{BASE}/{tool['id']}", json={"description": "Darkens the cellar", "tags": ["work"]})
    assert await found(query="hall") == [] == await found(query="cellar", tags=["home"])
    assert await found(query="cellar") == ["lamp"] == await found(query="darkens", tags=["work"])
    await client.delete(f"{BASE}/{tool['id']}")
    assert await found(query="cellar") == [] == await found(tags=["work"])


async def test_a_tool_that_requires_approval_by_default_brings_its_rule(client: httpx.AsyncClient) -> None:
    asking = await make(client, "asking", default_requires_approval=True)
    free = await make(client, "free")

    def approvals(agent: dict[str, Any]) -> list[str]:
        return [rule["tool_name"] for rule in agent["tool_rules"] if rule["type"] == "requires_approval"]

    created = await make_agent(client, tool_ids=[asking["id"], free["id"]])
    assert approvals(created) == ["asking"]
    attached = await make_agent(client)
    for tool in (asking, free):
        await client.patch(f"/v1/agents/{attached['id']}/tools/attach/{tool['id']}")
    assert approvals((await client.get(f"/v1/agents/{attached['id']}")).json()) == ["asking"]
    updated = await make_agent(client)
    body = {"tool_ids": [free["id"], asking["id"]]}
    assert approvals((await client.patch(f"/v1/agents/{updated['id']}", json=body)).json()) == ["asking"]
    # A person who switched the rule off for this agent is not overruled by a later change of its tools.
    await client.patch(f"/v1/agents/{updated['id']}/tools/approval/asking", json={"requires_approval": False})
    await client.patch(f"/v1/agents/{updated['id']}/tools/attach/{asking['id']}")
    assert approvals((await client.patch(f"/v1/agents/{updated['id']}", json=body)).json()) == []


async def test_approval_is_switched_by_name(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    agent = await make_agent(client, include_base_tools=False)
    path = f"/v1/agents/{agent['id']}/tools/approval"

    async def rules() -> list[tuple[str, str]]:
        found = (await client.get(f"/v1/agents/{agent['id']}")).json()["tool_rules"]
        return [(rule["type"], rule["tool_name"]) for rule in found]

    for _ in range(2):
        assert (await client.patch(f"{path}/square", json={"requires_approval": True})).json() is None
        assert await rules() == [("requires_approval", "square")]
    await client.patch(f"{path}/other", json={"requires_approval": True})
    assert (await client.patch(f"{path}/square", params={"requires_approval": False})).json() is None
    assert await rules() == [("requires_approval", "other")]
    async with client_of(kelpie, {"User-Agent": "curl/8"}) as old:
        answer = await old.patch(f"{path}/other", json={"requires_approval": False})
    assert answer.json()["tool_rules"] == [] == await rules()
    for bad in ({"json": {"requires_approval": True, "x": 1}}, {"json": {}}, {}):
        assert (await client.patch(f"{path}/square", **bad)).status_code == 422
    assert await rules() == []
    nobody = "agent-00000000-0000-4000-8000-0000000000ff"
    answer = await client.patch(f"/v1/agents/{nobody}/tools/approval/x", json={"requires_approval": True})
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("path", "method"),
    [("count", "GET"), ("search", "POST"), ("generate-schema", "POST"), ("add-base-tools", "POST")],
)
async def test_names_win_over_ids(client: httpx.AsyncClient, path: str, method: str) -> None:
    answer = await client.request(method, f"{BASE}/{path}", json={"query": "x", "code": source("f")})
    assert answer.status_code in (200, 422) and "tool_id" not in answer.text


async def test_another_organisation_sees_nothing_of_it(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    tool = await make(client, "mine")
    server = {"server_name": "s", "config": {"mcp_server_type": "stdio", "command": "c", "args": []}}
    mcp = (await client.post("/v1/mcp-servers/", json=server)).json()
    sandbox = (await client.post("/v1/sandbox-config/local/default")).json()
    variables = f"/v1/sandbox-config/{sandbox['id']}/environment-variable"
    variable = (await client.post(variables, json={"key": "K", "value": "v"})).json()
    organization = (await client.post("/v1/admin/orgs/", json={"name": "other"})).json()["id"]
    user = (await client.post("/v1/admin/users/", json={"name": "u", "organization_id": organization})).json()["id"]
    async with client_of(kelpie, SDK_HEADERS | {"user_id": user}) as other:
        assert (await other.get(f"{BASE}/", params={"tool_types": "custom"})).json() == []
        assert (await other.post(f"{BASE}/search", json={"query": "mine"})).json() == []
        assert (await other.get("/v1/mcp-servers/")).json() == [] == (await other.get("/v1/sandbox-config/")).json()
        assert (await other.get("/v1/tools/mcp/servers")).json() == {}
        change = {"config": server["config"], "key": "X"}
        for method, path, status in (
            ("GET", f"{BASE}/{tool['id']}", 404),
            ("DELETE", f"{BASE}/{tool['id']}", 400),
            ("GET", f"/v1/mcp-servers/{mcp['id']}", 404),
            ("PATCH", f"/v1/mcp-servers/{mcp['id']}", 404),
            ("DELETE", f"/v1/mcp-servers/{mcp['id']}", 400),
            ("DELETE", "/v1/tools/mcp/servers/s", 404),
            ("GET", variables, 404),
            ("DELETE", f"/v1/sandbox-config/{sandbox['id']}", 404),
            ("DELETE", f"/v1/sandbox-config/environment-variable/{variable['id']}", 404),
        ):
            body = {"config": change["config"]} if method == "PATCH" else None
            assert (await other.request(method, path, json=body)).status_code == status, (method, path)
        ours = (await other.post("/v1/mcp-servers/", json=server)).json()
        assert ours["id"] != mcp["id"], "names are unique in an organisation, not beyond"
        assert (await other.post("/v1/sandbox-config/local/default")).json()["id"] != sandbox["id"]
    assert (await client.get(f"{BASE}/{tool['id']}")).json() == tool
    assert (await client.get("/v1/mcp-servers/")).json() == [mcp]
    assert (await client.get(variables)).json() == [variable]
