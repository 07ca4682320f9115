"""Users and organisations over HTTP, and that they keep to themselves."""

import httpx
import pytest

from kelpie.app import Kelpie
from tests.server.rig import make_agent

DEFAULT_ORG = "org-00000000-0000-4000-8000-000000000000"
DEFAULT_USER = "user-00000000-0000-4000-8000-000000000000"
UNKNOWN_ORG = "org-00000000-0000-4000-8000-00000000000f"
UNKNOWN_USER = "user-00000000-0000-4000-8000-00000000000f"


async def test_what_is_there_from_the_start(client: httpx.AsyncClient) -> None:
    organizations = (await client.get("/v1/admin/orgs/")).json()
    users = (await client.get("/v1/admin/users/")).json()
    assert [(each["id"], each["name"]) for each in organizations] == [(DEFAULT_ORG, "default_org")]
    assert users == [
        {
            "id": DEFAULT_USER,
            "organization_id": DEFAULT_ORG,
            "name": "default_user",
            "created_at": None,
            "updated_at": users[0]["updated_at"],
            "is_deleted": False,
        }
    ]


async def test_an_organization_is_made_changed_and_removed(client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/admin/orgs/", json={"name": "acme", "privileged_tools": True})).json()
    assert made == {"id": made["id"], "name": "acme", "created_at": made["created_at"], "privileged_tools": True}
    assert (await client.get("/v1/admin/orgs/")).json()[1] == made
    path = f"/v1/admin/orgs/?org_id={made['id']}"
    changed = (await client.patch(path, json={"name": "acme2"})).json()
    assert changed == {**made, "name": "acme2"}
    assert (await client.patch(path, json={"privileged_tools": False})).json() == {**changed, "privileged_tools": False}
    assert (await client.delete(path)).json()["name"] == "acme2"
    assert len((await client.get("/v1/admin/orgs/")).json()) == 1
    assert (await client.delete(path)).status_code == 404
    assert (await client.patch(path, json={"name": "x"})).status_code == 404


async def test_an_organization_without_a_name_gets_one(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/admin/orgs/", json={})).json()["name"]


async def test_a_user_is_made_changed_and_removed(client: httpx.AsyncClient) -> None:
    organization = (await client.post("/v1/admin/orgs/", json={"name": "acme"})).json()
    made = (await client.post("/v1/admin/users/", json={"name": "joe", "organization_id": organization["id"]})).json()
    assert (made["name"], made["organization_id"], made["is_deleted"]) == ("joe", organization["id"], False)
    assert made["created_at"] == made["updated_at"]
    listed = (await client.get("/v1/admin/users/")).json()
    assert listed[0] == made and listed[1]["name"] == "default_user"
    changed = (await client.put("/v1/admin/users/", json={"id": made["id"], "name": "joe2"})).json()
    assert changed == {**made, "name": "joe2", "updated_at": changed["updated_at"]}
    moved = (await client.put("/v1/admin/users/", json={"id": made["id"], "organization_id": DEFAULT_ORG})).json()
    assert (moved["name"], moved["organization_id"]) == ("joe2", DEFAULT_ORG)
    assert (await client.delete(f"/v1/admin/users/?user_id={made['id']}")).json() == moved
    assert (await client.delete(f"/v1/admin/users/?user_id={made['id']}")).status_code == 404


async def test_lists_have_pages(client: httpx.AsyncClient) -> None:
    for number in range(5):
        made = await client.post("/v1/admin/orgs/", json={"name": f"org {number}"})
        await client.post("/v1/admin/users/", json={"name": f"user {number}", "organization_id": made.json()["id"]})
    for kind in ("orgs", "users"):
        whole = (await client.get(f"/v1/admin/{kind}/")).json()
        assert len(whole) == 6
        seen = []
        after = ""
        while page := (await client.get(f"/v1/admin/{kind}/?limit=2{after}")).json():
            seen += page
            after = f"&after={page[-1]['id']}"
        assert seen == whole


async def test_a_user_of_a_new_organization_makes_agents_at_once(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    organization = (await client.post("/v1/admin/orgs/", json={"name": "acme"})).json()
    body = {"name": "joe", "organization_id": organization["id"]}
    joe = {"user_id": (await client.post("/v1/admin/users/", json=body)).json()["id"]}
    agent = await client.post("/v1/agents/", json={"name": "first"}, headers=joe)
    assert agent.status_code == 200, agent.text
    assert {tool["name"] for tool in agent.json()["tools"]} >= {"memory_insert", "conversation_search"}
    said = {"messages": [{"role": "user", "content": "hi"}]}
    path = f"/v1/agents/{agent.json()['id']}"
    assert (await client.post(f"{path}/messages", json=said, headers=joe)).status_code == 200
    assert (await client.get(path)).status_code == 404, "the operator sees it when acting for joe"
    assert (await client.get(path, headers=joe)).json()["created_by_id"] == joe["user_id"]
    await make_agent(client)
    assert (await client.get("/v1/agents/count", headers=joe)).json() == 1
    assert (await client.get("/v1/agents/count")).json() == 1

    refused = await client.delete(f"/v1/admin/orgs/?org_id={organization['id']}")
    assert refused.status_code == 409 and "agents" in refused.json()["detail"] and "users" in refused.json()["detail"]
    assert (await client.delete(path, headers=joe)).status_code == 200
    assert (await client.delete(f"/v1/admin/users/?user_id={joe['user_id']}")).status_code == 200
    assert (await client.delete(f"/v1/admin/orgs/?org_id={organization['id']}")).status_code == 200
    left = await kelpie.world.database.read(
        lambda tx: tx.exec_driver_sql(
            "SELECT count(*) FROM tools WHERE organization_id = ?", (organization["id"],)
        ).scalar_one()
    )
    assert left == 0, "the built-in tools went with it"


async def test_the_tools_of_every_organization_are_brought_up_at_the_start(
    kelpie: Kelpie, client: httpx.AsyncClient
) -> None:
    organization = (await client.post("/v1/admin/orgs/", json={"name": "acme"})).json()["id"]
    database = kelpie.world.database
    await database.transact(
        lambda tx: tx.exec_driver_sql(
            "DELETE FROM tools WHERE organization_id = ? AND name = 'memory'", (organization,)
        )
    )
    await kelpie.seed_defaults()
    body = {"name": "joe", "organization_id": organization}
    joe = {"user_id": (await client.post("/v1/admin/users/", json=body)).json()["id"]}
    assert len((await client.get("/v1/tools/?name=memory", headers=joe)).json()) == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("DELETE", f"orgs/?org_id={DEFAULT_ORG}", None, 409),
        ("DELETE", f"users/?user_id={DEFAULT_USER}", None, 409),
        ("PUT", "users/", {"id": UNKNOWN_USER, "name": "x"}, 404),
        ("DELETE", f"orgs/?org_id={UNKNOWN_ORG}", None, 404),
        ("DELETE", "orgs/?org_id=acme", None, 400),
        ("DELETE", "orgs/", None, 422),
        ("DELETE", "users/?user_id=joe", None, 400),
        ("POST", "users/", {"name": "x", "organization_id": UNKNOWN_ORG}, 404),
        ("POST", "users/", {"name": "x", "organization_id": "acme"}, 400),
        ("POST", "users/", {"name": "x"}, 422),
        ("POST", "users/", {"name": "", "organization_id": DEFAULT_ORG}, 422),
        ("POST", "orgs/", {"name": "x" * 501}, 422),
        ("POST", "orgs/", {"name": "x", "id": UNKNOWN_ORG}, 422),
        ("GET", "orgs/?limit=-1", None, 422),
        ("PUT", "users/", {"id": DEFAULT_USER, "organization_id": UNKNOWN_ORG}, 409),
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_changes(
    client: httpx.AsyncClient, method: str, path: str, body: dict[str, object] | None, status: int
) -> None:
    before = [(await client.get(f"/v1/admin/{kind}/")).json() for kind in ("orgs", "users")]
    answer = await client.request(method, f"/v1/admin/{path}", json=body)
    assert answer.status_code == status, answer.text
    assert [(await client.get(f"/v1/admin/{kind}/")).json() for kind in ("orgs", "users")] == before


async def test_acting_for_a_user_of_another_organization_shows_that_one_alone(client: httpx.AsyncClient) -> None:
    organization = (await client.post("/v1/admin/orgs/", json={"name": "acme"})).json()["id"]
    body = {"name": "joe", "organization_id": organization}
    joe = {"user_id": (await client.post("/v1/admin/users/", json=body)).json()["id"]}
    assert [each["id"] for each in (await client.get("/v1/admin/orgs/", headers=joe)).json()] == [organization]
    assert [each["name"] for each in (await client.get("/v1/admin/users/", headers=joe)).json()] == ["joe"]
    assert (await client.post("/v1/admin/orgs/", json={"name": "x"}, headers=joe)).status_code == 403
    assert (await client.delete(f"/v1/admin/users/?user_id={DEFAULT_USER}", headers=joe)).status_code == 404
