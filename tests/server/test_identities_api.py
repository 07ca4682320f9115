"""Identities over HTTP, and how agents and blocks carry them."""

from typing import Any

import httpx
import pytest
from letta_client.types.agent_state import AgentState, Identity
from sqlalchemy import text

from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.access.identities import IdentityChanges, IdentityQuery, IdentityType, NewIdentity
from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import AgentId, BlockId, IdentityId, OrganizationId, UserId
from kelpie.core.paging import Page
from tests.server.rig import client_of, make_agent

ORGANIZATION = "org-00000000-0000-4000-8000-000000000000"
UNKNOWN = "identity-00000000-0000-4000-8000-0000000000ff"
NOBODY = "agent-00000000-0000-4000-8000-0000000000ff"
STRANGER = Caller(
    UserId("user-00000000-0000-4000-8000-000000000009"), OrganizationId("org-00000000-0000-4000-8000-000000000009")
)
FACTS = [
    {"key": "age", "value": 30, "type": "number"},
    {"key": "height", "value": 1.5, "type": "number"},
    {"key": "vip", "value": True, "type": "boolean"},
    {"key": "city", "value": "1", "type": "string"},
    {"key": "o", "value": {"a": [1, None]}, "type": "json"},
]


async def make_identity(client: httpx.AsyncClient, key: str = "ann", **fields: Any) -> dict[str, Any]:
    body = {"identifier_key": key, "name": "Ann", "identity_type": "user", **fields}
    answer = await client.post("/v1/identities/", json=body)
    assert answer.status_code == 200, answer.text
    Identity.model_validate(answer.json())
    return answer.json()


async def make_block(client: httpx.AsyncClient, label: str = "human") -> str:
    return (await client.post("/v1/blocks/", json={"label": label, "value": "v"})).json()["id"]


async def ids(client: httpx.AsyncClient, path: str, **params: Any) -> list[str]:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()]


async def links(kelpie: Kelpie) -> tuple[int, int]:
    statement = text("SELECT (SELECT count(*) FROM agent_identities), (SELECT count(*) FROM block_identities)")
    row = await kelpie.world.database.read(lambda tx: tx.execute(statement).one())
    return row[0], row[1]


async def test_every_field_is_read_back(client: httpx.AsyncClient) -> None:
    agent, block = (await make_agent(client))["id"], await make_block(client)
    made = await make_identity(client, project_id="p", properties=FACTS, agent_ids=[agent], block_ids=[block])
    assert made == {
        "id": made["id"],
        "identifier_key": "ann",
        "name": "Ann",
        "identity_type": "user",
        "project_id": "p",
        "agent_ids": [],
        "block_ids": [],
        "organization_id": ORGANIZATION,
        "properties": FACTS,
    }
    path = f"/v1/identities/{made['id']}"
    assert (await client.get(path)).json() == made
    assert await ids(client, f"{path}/agents") == [agent]
    assert await ids(client, f"{path}/blocks") == [block]


async def test_a_change_adds_and_an_upsert_replaces(client: httpx.AsyncClient) -> None:
    one, two = (await make_agent(client))["id"], (await make_agent(client))["id"]
    block = await make_block(client)
    made = await make_identity(client, properties=FACTS[:2], agent_ids=[one])
    path = f"/v1/identities/{made['id']}"
    body = {
        "name": "Bea",
        "properties": [{**FACTS[0], "value": 31}, FACTS[3]],
        "agent_ids": [two],
        "block_ids": [block],
    }
    changed = (await client.patch(path, json=body)).json()
    assert (changed["name"], changed["identity_type"]) == ("Bea", "user")
    assert changed["properties"] == [{**FACTS[0], "value": 31}, FACTS[1], FACTS[3]]
    assert await ids(client, f"{path}/agents", order="asc") == [one, two]
    key = {"identifier_key": "ann", "name": "Cleo", "identity_type": "org"}
    upserted = (await client.put("/v1/identities/", json=key)).json()
    assert (upserted["id"], upserted["name"], upserted["identity_type"]) == (made["id"], "Cleo", "org")
    assert upserted["properties"] == changed["properties"], "what is not named stays"
    again = {**key, "properties": [FACTS[4]], "agent_ids": [two], "block_ids": []}
    assert (await client.put("/v1/identities/", json=again)).json()["properties"] == [FACTS[4]]
    assert (await ids(client, f"{path}/agents"), await ids(client, f"{path}/blocks")) == ([two], [])
    answer = await client.put(f"{path}/properties", json=[FACTS[2]])
    assert answer.json() == (await client.get(path)).json()
    assert answer.json()["properties"] == [FACTS[2]]
    fresh = (await client.put("/v1/identities/", json={**key, "identifier_key": "new", "agent_ids": [one]})).json()
    assert fresh["id"] != made["id"] and await ids(client, f"/v1/identities/{fresh['id']}/agents") == [one]
    assert (await client.get("/v1/identities/count")).json() == 2
    renamed = await client.patch(path, json={"identifier_key": "new"})
    assert renamed.status_code == 409 and "identifier_key" in renamed.json()["detail"]
    assert (await client.get(path)).json()["identifier_key"] == "ann"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"identity_type": "alien"}, 422),
        ({"identifier_key": ""}, 422),
        ({"identifier_key": "x" * 501}, 422),
        ({"name": None}, 422),
        ({"colour": "red"}, 422),
        ({"properties": [{"key": "a", "value": 1}]}, 422),
        ({"properties": [{"key": "a", "value": None, "type": "json"}]}, 422),
        ({"properties": [{"key": "a", "value": 1, "type": "number", "more": 1}]}, 422),
        ({"agent_ids": ["x"]}, 400),
        ({"agent_ids": [NOBODY]}, 404),
        ({"block_ids": ["block-00000000-0000-4000-8000-0000000000ff"]}, 404),
        ({"identifier_key": "taken"}, 409),
    ],
)
async def test_a_bad_identity_is_refused_and_not_stored(
    client: httpx.AsyncClient, kelpie: Kelpie, change: dict[str, Any], status: int
) -> None:
    await make_identity(client, "taken")
    agent = (await make_agent(client))["id"]
    body = {"identifier_key": "k", "name": "n", "identity_type": "user", "agent_ids": [agent], **change}
    for method in ("POST", "PUT") if status != 409 else ("POST",):
        answer = await client.request(method, "/v1/identities/", json=body)
        assert answer.status_code == status, answer.text
    assert (await client.get("/v1/identities/count")).json() == 1
    assert await links(kelpie) == (0, 0)


async def test_the_list_has_filters_and_pages_both_ways(client: httpx.AsyncClient) -> None:
    made = [
        (await make_identity(client, f"k{n}", name=f"Ann {n}", identity_type=kind, project_id=project))["id"]
        for n, (kind, project) in enumerate((("user", None), ("org", "p"), ("other", None), ("user", "p")))
    ]

    async def listed(**params: Any) -> list[int]:
        return [made.index(one) for one in await ids(client, "/v1/identities/", **params)]

    assert await listed() == [3, 2, 1, 0]
    assert await listed(order="asc", limit=2, after=made[0]) == [1, 2]
    assert await listed(limit=2, before=made[0]) == [2, 1]
    assert await listed(name="ann 1") == [1]
    assert await listed(identity_type="user") == [3, 0]
    assert await listed(project_id="p", identity_type="user") == [3]
    assert await listed(identifier_key="k2") == [2]
    assert await listed(identifier_key="k") == []
    for params, status in (({"after": "bogus"}, 404), ({"order": "up"}, 422), ({"identity_type": "x"}, 422)):
        assert (await client.get("/v1/identities/", params=params)).status_code == status


async def test_an_agent_carries_identities(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    ann, ben = await make_identity(client), await make_identity(client, "ben")
    made = await make_agent(client, identity_ids=[ann["id"], ben["id"], ann["id"]])
    AgentState.model_validate(made)
    assert made["identities"] == [ann, ben] and made["identity_ids"] == [ann["id"], ben["id"]]
    path = f"/v1/agents/{made['id']}"
    plain = (await client.get(path)).json()
    assert (plain["identities"], plain["identity_ids"]) == ([], [])
    read = (await client.get(path, params={"include": "agent.identities"})).json()
    assert read["identities"] == [ann, ben] and read["blocks"] == []
    async with client_of(kelpie, {"User-Agent": "curl/8.0"}) as old:
        assert (await old.get(path)).json()["identities"] == [ann, ben]
    changed = (await client.patch(path, json={"identity_ids": [ben["id"]]})).json()
    assert changed["identity_ids"] == [ben["id"]]
    assert (await client.patch(path, json={"description": "d"})).json()["identity_ids"] == [ben["id"]]
    for change, status in (({"identity_ids": [UNKNOWN]}, 409), ({"identity_ids": ["x"]}, 400)):
        answer = await client.patch(path, json={**change, "description": "lost"})
        assert answer.status_code == status and "identity" in answer.json()["detail"]
        answer = await client.post("/v1/agents/", json={"name": "never", **change})
        assert answer.status_code == status
    assert (await client.get(path)).json()["description"] == "d"
    assert (await client.get("/v1/agents/count")).json() == 1
    assert (await client.patch(path, json={"identity_ids": []})).json()["identities"] == []


async def test_agents_are_found_by_their_identities(client: httpx.AsyncClient) -> None:
    ann, ben = await make_identity(client), await make_identity(client, "ben")
    first = (await make_agent(client, identity_ids=[ann["id"]]))["id"]
    both = (await make_agent(client, identity_ids=[ann["id"], ben["id"]], hidden=True))["id"]
    await make_agent(client)
    shown: dict[str, Any] = {"show_hidden_agents": True, "order": "asc"}
    assert await ids(client, "/v1/agents/", identity_id=ann["id"]) == [first]
    assert await ids(client, "/v1/agents/", identity_id=ann["id"], **shown) == [first, both]
    assert await ids(client, "/v1/agents/", identifier_keys=["ben", "zoe"], **shown) == [both]
    assert await ids(client, "/v1/agents/", identifier_keys=["ann", "ben"], **shown) == [first, both]
    assert await ids(client, "/v1/agents/", identity_id=UNKNOWN) == []
    path = f"/v1/identities/{ann['id']}/agents"
    assert await ids(client, path, order="asc") == [first, both]
    assert await ids(client, path, order="asc", limit=1, after=first) == [both]
    (listed,) = (await client.get(path, params={"limit": 1, "include": "agent.identities"})).json()
    assert [one["identifier_key"] for one in listed["identities"]] == ["ann", "ben"]


@pytest.mark.parametrize("kind", ["agents", "blocks"])
async def test_links_are_made_and_parted_one_by_one(client: httpx.AsyncClient, kelpie: Kelpie, kind: str) -> None:
    ann = (await make_identity(client))["id"]
    row = (await make_agent(client))["id"] if kind == "agents" else await make_block(client)
    path = f"/v1/{kind}/{row}/identities"
    for _ in range(2):
        answer = await client.patch(f"{path}/attach/{ann}")
        assert answer.status_code == 200, answer.text
        assert (answer.json() is None) if kind == "agents" else (answer.json()["id"] == row)
    assert await ids(client, f"/v1/identities/{ann}/{kind}") == [row]
    assert await ids(client, f"/v1/{kind}/", identity_id=ann) == [row]
    assert await ids(client, f"/v1/{kind}/", identifier_keys=["ann"]) == [row]
    for _ in range(2):
        assert (await client.patch(f"{path}/detach/{ann}")).status_code == 200
    assert await ids(client, f"/v1/identities/{ann}/{kind}") == []
    assert await ids(client, f"/v1/{kind}/", identity_id=ann) == []
    strange = path.replace(row, row[:-2] + ("fe" if row[-2:] != "fe" else "ef"))
    for verb in ("attach", "detach"):
        assert (await client.patch(f"{path}/{verb}/{UNKNOWN}")).status_code == 404
        assert (await client.patch(f"{strange}/{verb}/{ann}")).status_code == 404
        assert (await client.patch(f"{path}/{verb}/bad")).status_code == 422
    assert await links(kelpie) == (0, 0)


async def test_nothing_dangles_when_an_end_goes(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    agent, block = (await make_agent(client))["id"], await make_block(client)
    other = (await make_agent(client))["id"]
    made = await make_identity(client, agent_ids=[agent, other], block_ids=[block])
    assert (await client.delete(f"/v1/agents/{agent}")).status_code == 200
    assert (await client.delete(f"/v1/blocks/{block}")).status_code == 200
    assert await links(kelpie) == (1, 0)
    answer = await client.delete(f"/v1/identities/{made['id']}")
    assert (answer.status_code, answer.json()) == (200, None)
    for method, path in (("GET", ""), ("DELETE", ""), ("PATCH", ""), ("GET", "/agents"), ("GET", "/blocks")):
        body = {} if method == "PATCH" else None
        answer = await client.request(method, f"/v1/identities/{made['id']}{path}", json=body)
        assert answer.status_code == 404, (method, path)
    assert (await client.put(f"/v1/identities/{made['id']}/properties", json=[])).status_code == 404
    read = (await client.get(f"/v1/agents/{other}", params={"include": "agent.identities"})).json()
    assert read["identities"] == [] and await links(kelpie) == (0, 0)


async def test_nobody_sees_the_identities_of_others(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    agent, block = AgentId((await make_agent(client))["id"]), BlockId(await make_block(client))
    mine = IdentityId((await make_identity(client, agent_ids=[agent]))["id"])
    doors = kelpie.api(STRANGER)
    theirs = doors.identities
    same_key = NewIdentity("ann", "Other Ann", IdentityType.user)
    own = await theirs.create(same_key)
    assert (await theirs.upsert(same_key)).id == own.id != mine
    refused: list[Any] = [
        theirs.get(mine),
        theirs.update(mine, IdentityChanges(name="x")),
        theirs.update(own.id, IdentityChanges(agent_ids=(agent,))),
        theirs.update(own.id, IdentityChanges(block_ids=(block,))),
        theirs.set_properties(mine, ()),
        theirs.delete(mine),
        theirs.attach_to_agent(agent, own.id),
        theirs.attach_to_block(block, own.id),
        theirs.detach_from_agent(agent, mine),
        theirs.page(IdentityQuery(Page(before=mine))),
    ]
    for call in refused:
        with pytest.raises(NotFound):
            await call
    with pytest.raises(Conflict):
        await kelpie.api(Caller()).agents.update(agent, {"identity_ids": (own.id,)})
    assert [one.id for one in await theirs.page(IdentityQuery())] == [own.id]
    assert await theirs.count() == 1
    assert await ids(client, f"/v1/identities/{mine}/agents") == [agent]
    assert (await client.get("/v1/identities/")).json()[0]["name"] == "Ann"
    assert await links(kelpie) == (1, 0)


async def test_a_known_identity_is_linked_with_further_agents_and_stays_as_it_is(
    client: httpx.AsyncClient, kelpie: Kelpie
) -> None:
    made = await make_identity(client, properties=FACTS[:1])
    one, two = [(await make_agent(client, name=name))["id"] for name in ("one", "two")]
    for agents in ((one,), (two,), (one,)):
        new = NewIdentity("ann", "another name", IdentityType.other, agent_ids=tuple(map(AgentId, agents)))
        assert (await kelpie.api().identities.known(new)).id == made["id"]
    assert (await client.get(f"/v1/identities/{made['id']}")).json()["name"] == "Ann"
    for agent in (one, two):
        shown = (await client.get(f"/v1/agents/{agent}", params={"include": ["agent.identities"]})).json()
        assert [each["id"] for each in shown["identities"]] == [made["id"]]
