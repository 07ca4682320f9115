"""API keys: shown once, kept as a hash, bounded by scope, agents and time, and ended at once."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.accounts import last_use
from kelpie.accounts.api_keys import ApiKeys
from kelpie.app import Kelpie
from kelpie.core.errors import CommitUnknown
from kelpie.core.ids import KeyId
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.storage.accounts import api_keys
from kelpie.world.clock import SystemClock
from kelpie.world.database import Tx
from tests.server.rig import make_agent, open_rig
from tests.server.test_auth import bearer, make_key, shown

READS = [("GET", "/v1/agents/"), ("GET", "/v1/tools/"), ("GET", "/openapi.json"), ("GET", "/v1/models/")]
WRITES = [
    ("POST", "/v1/agents/"),
    ("POST", "/v1/blocks/"),
    ("DELETE", "/v1/agents/{agent}"),
    ("PATCH", "/v1/agents/{agent}"),
]
ADMIN = [
    ("GET", "/v1/admin/users/"),
    ("POST", "/v1/admin/users/"),
    ("GET", "/v1/admin/orgs/"),
    ("GET", "/v1/kelpie/keys"),
    ("POST", "/v1/kelpie/keys"),
    ("GET", "/v1/kelpie/policy"),
]


def on_disk(directory: Path, text: str) -> list[str]:
    """The files that hold this text."""
    return [file.name for file in directory.iterdir() if text.encode() in file.read_bytes()]


class MovableClock(SystemClock):
    """The wall clock, and what it is set forward by."""

    def __init__(self) -> None:
        self.ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def locked(tmp_path: Path, clock: MovableClock) -> AsyncIterator[Kelpie]:
    async with open_rig(tmp_path, password="open sesame", clock=clock) as (kelpie, _):
        yield kelpie


@pytest.fixture
async def operator(locked: Kelpie) -> AsyncIterator[httpx.AsyncClient]:
    async with shown(locked, "open sesame") as client:
        yield client


async def test_a_key_is_made_read_back_and_revoked(locked: Kelpie, operator: httpx.AsyncClient) -> None:
    agent = await make_agent(operator)
    body = {
        "name": "everything set",
        "scopes": ["admin", "read"],
        "user_id": "user-00000000-0000-4000-8000-000000000000",
        "agent_ids": [agent["id"], agent["id"]],
        "expires_at": "2099-01-02T03:04:05Z",
    }
    made = await make_key(locked, **body)
    assert made["key"].startswith("kelpie-key_") and made["key"].endswith(made["hint"])
    text = made.pop("key")
    assert made == {
        **body,
        "scopes": ["read", "admin"],
        "agent_ids": [agent["id"]],
        "project_ids": None,
        "expires_at": "2099-01-02T03:04:05Z",
        "id": made["id"],
        "organization_id": "org-00000000-0000-4000-8000-000000000000",
        "hint": text[-4:],
        "created_at": made["created_at"],
        "last_used_at": None,
    }
    assert (await operator.get(f"/v1/kelpie/keys/{made['id']}")).json() == made
    assert (await operator.get("/v1/kelpie/keys")).json() == [made]
    assert (await operator.delete(f"/v1/kelpie/keys/{made['id']}")).json() == made
    assert (await operator.get("/v1/kelpie/keys")).json() == []
    for method in ("GET", "DELETE"):
        assert (await operator.request(method, f"/v1/kelpie/keys/{made['id']}")).status_code == 404


async def test_the_secret_is_nowhere_on_disk(locked: Kelpie, operator: httpx.AsyncClient, tmp_path: Path) -> None:
    made = await make_key(locked)
    secret = re.split(r"_[0-9a-f]{32}_", made["key"])[1]  # which may have a low line of its own
    assert len(secret) > 20
    async with shown(locked, made["key"]) as program:
        assert (await program.get("/v1/agents/")).status_code == 200
    await locked.runtime.authenticator.close()
    assert not on_disk(tmp_path, secret)
    with closing(sqlite3.connect(tmp_path / "kelpie.db")) as database:
        assert database.execute("SELECT length(digest) FROM api_keys").fetchall() == [(64,)]


@pytest.mark.parametrize(
    ("scope", "allowed", "refused"),
    [("read", READS, [*WRITES, *ADMIN]), ("write", [*READS, *WRITES], ADMIN), ("admin", [*READS, *WRITES, *ADMIN], [])],
)
async def test_a_scope_allows_what_it_says_and_no_more(
    locked: Kelpie,
    operator: httpx.AsyncClient,
    scope: str,
    allowed: list[tuple[str, str]],
    refused: list[tuple[str, str]],
) -> None:
    agent = await make_agent(operator)
    key = await make_key(locked, scopes=[scope])
    async with shown(locked, key["key"]) as program:
        for method, path in refused:
            answer = await program.request(method, path.format(agent=agent["id"]), json={})
            assert answer.status_code == 403 and "scope" in answer.json()["detail"], (method, path)
        assert (await operator.get("/v1/agents/count")).json() == 1
        for method, path in allowed:
            answer = await program.request(method, path.format(agent=agent["id"]), json={"name": "x"})
            assert answer.status_code not in (401, 403), (method, path, answer.text)


async def test_searches_only_read(locked: Kelpie) -> None:
    key = await make_key(locked, scopes=["read"])
    async with shown(locked, key["key"]) as program:
        for path in ("/v1/messages/search", "/v1/passages/search", "/v1/tools/search", "/v1/agents/messages/search"):
            assert (await program.post(path, json={})).status_code != 403
        assert (await program.post("/v1/agents/x/messages/stream", json={})).status_code == 403


async def test_an_admin_key_reaches_its_own_organization_and_no_further(
    locked: Kelpie, operator: httpx.AsyncClient
) -> None:
    orgs = [(await operator.post("/v1/admin/orgs/", json={"name": name})).json()["id"] for name in ("one", "two")]
    users = [
        (await operator.post("/v1/admin/users/", json={"name": "u", "organization_id": org})).json()["id"]
        for org in orgs
    ]
    ours, theirs = [await make_key(locked, user_id=user, scopes=["admin"]) for user in users]
    async with shown(locked, ours["key"]) as admin:
        assert [each["id"] for each in (await admin.get("/v1/admin/orgs/")).json()] == [orgs[0]]
        assert [each["id"] for each in (await admin.get("/v1/admin/users/")).json()] == [users[0]]
        assert [each["id"] for each in (await admin.get("/v1/kelpie/keys")).json()] == [ours["id"]]
        for method, path, body in (
            ("POST", "/v1/admin/users/", {"name": "x", "organization_id": orgs[1]}),
            ("PUT", "/v1/admin/users/", {"id": users[1], "name": "x"}),
            ("PUT", "/v1/admin/users/", {"id": users[0], "organization_id": orgs[1]}),
            ("DELETE", f"/v1/admin/users/?user_id={users[1]}", None),
            ("PATCH", f"/v1/admin/orgs/?org_id={orgs[1]}", {"name": "x"}),
            ("POST", "/v1/kelpie/keys", {"name": "x", "user_id": users[1]}),
            ("GET", f"/v1/kelpie/keys/{theirs['id']}", None),
            ("DELETE", f"/v1/kelpie/keys/{theirs['id']}", None),
        ):
            assert (await admin.request(method, path, json=body)).status_code == 404, (method, path)
        assert (await admin.post("/v1/admin/orgs/", json={"name": "x"})).status_code == 403
        assert (await admin.delete(f"/v1/admin/orgs/?org_id={orgs[1]}")).status_code == 403
        assert (await admin.post("/v1/kelpie/keys", json={"name": "mine"})).json()["organization_id"] == orgs[0]
    assert len((await operator.get("/v1/admin/users/")).json()) == 3


async def test_an_operator_makes_keys_for_agents_and_projects_of_their_user(
    locked: Kelpie, operator: httpx.AsyncClient
) -> None:
    org = (await operator.post("/v1/admin/orgs/", json={"name": "one"})).json()["id"]
    user = (await operator.post("/v1/admin/users/", json={"name": "u", "organization_id": org})).json()["id"]
    as_user = {"user_id": user}
    theirs = (await operator.post("/v1/agents/", json={"name": "theirs"}, headers=as_user)).json()["id"]
    project = (await operator.post("/v1/projects", json={"name": "theirs"}, headers=as_user)).json()["id"]
    ours = (await make_agent(operator, name="ours"))["id"]
    own = (await operator.post("/v1/projects", json={"name": "ours"})).json()["id"]
    for foreign in ({"agent_ids": [ours]}, {"project_ids": [own]}):
        answer = await operator.post("/v1/kelpie/keys", json={"name": "x", "user_id": user, **foreign})
        assert answer.status_code == 404, foreign
    key = await make_key(locked, user_id=user, agent_ids=[theirs], project_ids=[project])
    assert (key["organization_id"], key["agent_ids"], key["project_ids"]) == (org, [theirs], [project])
    assert [each["id"] for each in (await operator.get("/v1/kelpie/keys")).json()] == [key["id"]]


async def test_a_key_for_one_agent_refers_to_nothing_that_another_said(
    locked: Kelpie, operator: httpx.AsyncClient
) -> None:
    own, other = await make_agent(operator), await make_agent(operator)
    said: dict[str, str] = {}
    for agent in (own, other):
        body = {"model": agent["id"], "input": f"hello {agent['id']}"}
        said[agent["id"]] = (await operator.post("/openai/v1/responses", json=body)).json()["output"][0]["id"]
    key = await make_key(locked, scopes=["read", "write"], agent_ids=[own["id"]])
    async with shown(locked, key["key"]) as confined:
        for agent, status in ((own, 200), (other, 403)):
            referred = {"type": "item_reference", "id": said[agent["id"]]}
            body = {"model": own["id"], "input": [referred, {"role": "user", "content": "and now?"}]}
            answer = await confined.post("/openai/v1/responses", json=body)
            assert answer.status_code == status, answer.text


async def test_a_key_for_some_agents_touches_no_others(locked: Kelpie, operator: httpx.AsyncClient) -> None:
    ours, theirs = await make_agent(operator, name="ours"), await make_agent(operator, name="theirs")
    block = (
        theirs["blocks"][0]["id"]
        if theirs["blocks"]
        else (await operator.post("/v1/blocks/", json={"label": "human", "value": "secret"})).json()["id"]
    )
    key = await make_key(locked, scopes=["write"], agent_ids=[ours["id"]])
    async with shown(locked, key["key"]) as program:
        assert (await program.get(f"/v1/agents/{ours['id']}")).json()["name"] == "ours"
        assert (await program.patch(f"/v1/agents/{ours['id']}", json={"name": "new"})).json()["name"] == "new"
        said = {"messages": [{"role": "user", "content": "hi"}]}
        assert (await program.post(f"/v1/agents/{ours['id']}/messages", json=said)).status_code == 200
        assert [each["id"] for each in (await program.get("/v1/agents/")).json()] == [ours["id"]]
        for method, path, body in (
            ("GET", f"/v1/agents/{theirs['id']}", None),
            ("PATCH", f"/v1/agents/{theirs['id']}", {"name": "x"}),
            ("POST", f"/v1/agents/{theirs['id']}/messages", said),
            ("POST", "/v1/agents/", {"name": "x"}),
            ("GET", f"/v1/blocks/{block}", None),
            ("GET", "/v1/runs/", None),
            ("PATCH", f"/v1/agents/{ours['id']}/core-memory/blocks/attach/{block}", None),
            ("PATCH", f"/v1/agents/{ours['id']}", {"block_ids": [block]}),
            ("POST", "/v1/client-side-access-tokens", {"hostname": "https://x.y", "policy": []}),
        ):
            answer = await program.request(method, path, json=body)
            assert answer.status_code == 403, (method, path, answer.text)
    assert (await operator.get(f"/v1/agents/{theirs['id']}")).json()["name"] == "theirs"
    assert (await operator.get(f"/v1/agents/{ours['id']}/core-memory/blocks")).json() == []


async def test_a_revoked_key_lets_nobody_in_from_that_moment(locked: Kelpie, operator: httpx.AsyncClient) -> None:
    key = await make_key(locked)
    async with shown(locked, key["key"]) as program:
        assert (await program.get("/v1/agents/")).status_code == 200
        assert (await operator.delete(f"/v1/kelpie/keys/{key['id']}")).status_code == 200
        assert (await program.get("/v1/agents/")).status_code == 401


async def test_an_expired_key_lets_nobody_in(locked: Kelpie, clock: MovableClock) -> None:
    key = await make_key(locked, expires_at="2099-01-01T00:00:00")
    async with shown(locked, key["key"]) as program:
        assert (await program.get("/v1/agents/")).status_code == 200
        clock.ahead = 100 * 366 * 24 * 3600 * MICROS_PER_SECOND
        assert (await program.get("/v1/agents/")).status_code == 401, "known as it is"


async def test_a_changed_secret_is_wrong(locked: Kelpie) -> None:
    key = await make_key(locked)
    text = key["key"]
    for wrong in (text[:-1] + ("A" if text[-1] != "A" else "B"), text + "A", text[:-1], text.replace("_", "-")):
        async with shown(locked, wrong) as program:
            assert (await program.get("/v1/agents/")).status_code == 401


async def test_on_an_open_server_a_key_is_still_bound_to_what_it_allows(
    kelpie: Kelpie, client: httpx.AsyncClient
) -> None:
    made = (await client.post("/v1/kelpie/keys", json={"name": "reader", "scopes": ["read"]})).json()
    reader = bearer(made["key"])
    assert (await client.get("/v1/agents/", headers=reader)).status_code == 200
    assert (await client.post("/v1/agents/", json={}, headers=reader)).status_code == 403
    await client.delete(f"/v1/kelpie/keys/{made['id']}")
    assert (await client.get("/v1/agents/", headers=reader)).status_code == 401, "it would otherwise be the operator's"


async def test_the_last_use_is_noted_and_written_seldom(
    locked: Kelpie, operator: httpx.AsyncClient, clock: MovableClock
) -> None:
    key = await make_key(locked)

    async def last_used() -> str:
        return (await operator.get(f"/v1/kelpie/keys/{key['id']}")).json()["last_used_at"]

    async with shown(locked, key["key"]) as program:
        assert await last_used() is None
        await program.get("/v1/agents/")
        await locked.runtime.authenticator.close()
        first = await last_used()
        assert first is not None
        await program.get("/v1/agents/")
        await locked.runtime.authenticator.close()
        assert await last_used() == first, "within a minute nothing is written"
        clock.ahead = last_use.EVERY
        await program.get("/v1/agents/")
        await locked.runtime.authenticator.close()
        assert await last_used() > first


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "name"),
        ({"name": ""}, 422, "name"),
        ({"name": "x", "scopes": []}, 422, "scopes"),
        ({"name": "x", "scopes": ["root"]}, 422, "scopes"),
        ({"name": "x", "expires_at": "2001-01-01T00:00:00Z"}, 400, "expires_at"),
        ({"name": "x", "expires_at": "soon"}, 422, "expires_at"),
        ({"name": "x", "expires_at": "9999-12-31T23:59:59-12:00"}, 400, "expires_at"),
        ({"name": "x", "agent_ids": []}, 422, "agent_ids"),
        ({"name": "x", "agent_ids": ["agent-1"]}, 400, "agent_id"),
        ({"name": "x", "agent_ids": ["agent-00000000-0000-4000-8000-00000000000f"]}, 404, "Agent"),
        ({"name": "x", "user_id": "user-00000000-0000-4000-8000-00000000000f"}, 404, "User"),
        ({"name": "x", "user_id": "joe"}, 400, "user_id"),
        ({"name": "x", "surprise": 1}, 422, "surprise"),
    ],
)
async def test_a_key_that_cannot_be_is_refused_and_not_made(
    operator: httpx.AsyncClient, body: dict[str, object], status: int, field: str
) -> None:
    answer = await operator.post("/v1/kelpie/keys", json=body)
    assert answer.status_code == status and field in answer.text
    assert (await operator.get("/v1/kelpie/keys")).json() == []


class Doubtful:
    """A database whose commits take place and are answered as unknown."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def transact(self, fn: Any) -> Any:
        await self._inner.transact(fn)
        raise CommitUnknown("The answer to the commit was lost.")


async def test_a_key_whose_revocation_is_in_doubt_is_looked_up_again(locked: Kelpie) -> None:
    made, database = await make_key(locked), locked.world.database
    doubtful: Any = Doubtful(database)
    keys = ApiKeys(replace(locked.world, database=doubtful), locked.runtime.authenticator.forget)
    async with shown(locked, made["key"]) as program:
        assert (await program.get("/v1/agents/count")).status_code == 200
        with pytest.raises(CommitUnknown):
            await keys.revoke(KeyId(made["id"]))
        assert (await program.get("/v1/agents/count")).status_code == 401


async def test_a_key_that_comes_back_works_after_the_next_change(locked: Kelpie) -> None:
    made, database = await make_key(locked), locked.world.database
    key_id = KeyId(made["id"])
    found = await database.read(lambda tx: api_keys.find(tx, key_id))
    assert found is not None
    async with shown(locked, made["key"]) as program:
        await locked.api().api_keys.revoke(key_id)
        assert (await program.get("/v1/agents/count")).status_code == 401, "from now on it is known to be wrong"

        def bring_back(tx: Tx) -> None:
            api_keys.insert(tx, *found)

        await database.transact(bring_back)
        locked.runtime.authenticator.forget()
        assert (await program.get("/v1/agents/count")).status_code == 200
