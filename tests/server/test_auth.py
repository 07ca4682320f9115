"""Who is let in: passwords, keys and what a request without either gets."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.accounts.login_failures import FAILURES_MAX
from kelpie.accounts.password import generate, hashed
from kelpie.app import Kelpie
from kelpie.core.access.client_addresses import TrustedProxies
from kelpie.core.access.credential_scopes import NewKey, Scope
from kelpie.core.ids import DEFAULT_USER, KeyId
from kelpie.server.app import create_app
from kelpie.server.edge.connection_limits import connection_limits
from kelpie.server.edge.forwarded_client import ForwardedClient
from kelpie.storage.accounts import api_keys
from kelpie.world.database import Tx
from kelpie.world.ids import RandomIds
from tests.server.rig import SDK_HEADERS, client_of, make_agent, open_rig

OPEN = ["/v1/health/", "/latest/health/", "/v1/ready/", "/v1/ready", "/latest/ready"]
PAGES = ["/", "/docs", "/openapi.json", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/favicon.ico"]
CLOSED = [
    "/v1/agents/",
    "/v1/nope",
    "/docs/",
    "/docs/x",
    "/latest/agents/",
    "/v1/admin/users/",
    "/v1/health/x",
]
FOREIGN = "user-00000000-0000-4000-8000-00000000000f"


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.fixture
async def locked(tmp_path: Path) -> AsyncIterator[Kelpie]:
    async with open_rig(tmp_path, password="open sesame") as (kelpie, _):
        yield kelpie


@pytest.fixture
async def door(locked: Kelpie) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(locked) as client:
        yield client


@asynccontextmanager
async def shown(
    kelpie: Kelpie, text: str, headers: Mapping[str, str] | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(kelpie, {**SDK_HEADERS, **bearer(text), **(headers or {})}) as client:
        yield client


async def make_key(kelpie: Kelpie, **body: Any) -> dict[str, Any]:
    async with shown(kelpie, "open sesame") as operator:
        made = await operator.post("/v1/kelpie/keys", json={"name": "test", **body})
    assert made.status_code == 200, made.text
    return made.json()


# --- the password -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", OPEN)
async def test_health_is_for_everyone(door: httpx.AsyncClient, path: str) -> None:
    answer = await door.get(path)
    assert answer.status_code == 200 and answer.json()["status"] == "ok"


@pytest.mark.parametrize("path", PAGES)
async def test_pages_without_data_are_for_everyone(door: httpx.AsyncClient, path: str) -> None:
    assert (await door.get(path)).status_code == 200
    assert (await door.post(path, json={})).status_code == 405


async def test_the_slashless_health_leads_to_the_other_one(door: httpx.AsyncClient) -> None:
    assert (await door.get("/v1/health")).status_code == 307


@pytest.mark.parametrize("path", CLOSED)
async def test_everything_else_is_not(door: httpx.AsyncClient, path: str) -> None:
    answer = await door.get(path)
    assert (answer.status_code, answer.json()) == (401, {"detail": "Unauthorized", "code": "unauthorized"})
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer open sesame"},
        {"Authorization": "bearer open sesame"},
        {"X-BARE-PASSWORD": "password open sesame"},
        {"Authorization": "Basic xyz", "X-BARE-PASSWORD": "password open sesame"},
    ],
)
async def test_the_password_lets_in(door: httpx.AsyncClient, headers: dict[str, str]) -> None:
    assert (await door.get("/v1/agents/count", headers=headers)).json() == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "open sesame"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer open"},
        {"Authorization": "Basic open sesame"},
        {"Authorization": "Bearer open sesame2"},
        {"X-BARE-PASSWORD": "open sesame"},
        {"X-BARE-PASSWORD": "password open"},
    ],
)
async def test_nothing_else_does(door: httpx.AsyncClient, headers: dict[str, str]) -> None:
    assert (await door.get("/v1/agents/count", headers=headers)).status_code == 401


async def test_a_password_with_other_letters_works(tmp_path: Path) -> None:
    async with open_rig(tmp_path, password="Žluťoučký kůň") as (kelpie, _), client_of(kelpie) as client:
        sent = {"Authorization": "Bearer Žluťoučký kůň".encode()}
        assert (await client.get("/v1/agents/count", headers=sent)).status_code == 200


async def test_a_password_that_was_made_is_known_by_its_hash_alone(tmp_path: Path) -> None:
    ids = RandomIds()
    made = generate(ids)
    async with open_rig(tmp_path, host="0.0.0.0", password_kept=hashed(made, ids)) as (kelpie, _):
        async with shown(kelpie, made) as client:
            answers = await asyncio.gather(*(client.get("/v1/agents/count") for _ in range(10)))
            assert {answer.status_code for answer in answers} == {200}
        async with shown(kelpie, made[:-1]) as client:
            assert (await client.get("/v1/agents/count")).status_code == 401


async def test_a_preflight_needs_no_credential(door: httpx.AsyncClient) -> None:
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    answer = await door.options("/v1/agents/", headers=asked)
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "https://app.example"
    refused = await door.get("/v1/agents/", headers={"Origin": "https://app.example"})
    assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == "https://app.example"


async def test_the_legacy_question_for_a_password(door: httpx.AsyncClient) -> None:
    sesame = bearer("open sesame")
    answer = await door.post("/v1/auth", json={"password": "open sesame"}, headers=sesame)
    assert answer.json() == {"uuid": DEFAULT_USER.uuid, "is_admin": True}
    assert (await door.post("/v1/auth", json={"password": "x"}, headers=sesame)).status_code == 401
    assert (await door.post("/v1/auth", json={"password": "open sesame"})).status_code == 401


async def test_an_open_server_takes_any_password(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/auth", json={"password": "x"})).json()["is_admin"] is True
    assert (await client.get("/v1/agents/count", headers=bearer("whatever the SDK was given"))).status_code == 200


# --- too many failures ------------------------------------------------------------------------------------------------


async def test_guessing_is_slowed_down_and_who_is_known_is_not(locked: Kelpie, door: httpx.AsyncClient) -> None:
    sesame = bearer("open sesame")
    for number in range(FAILURES_MAX):
        assert (await door.get("/v1/agents/count", headers=bearer(f"guess {number}"))).status_code == 401
    answer = await door.get("/v1/agents/count", headers=bearer("one more"))
    assert answer.status_code == 429 and int(answer.headers["Retry-After"]) >= 1
    assert (await door.get("/v1/agents/count", headers=bearer("kelpie-key_" + "0" * 76))).status_code == 429
    assert (await door.get("/v1/agents/count", headers=sesame)).status_code == 200
    assert (await door.get("/v1/agents/count")).status_code == 401, "to send nothing is not to guess"
    other = httpx.ASGITransport(door._transport.app, client=("10.9.8.7", 1))  # pyright: ignore
    async with httpx.AsyncClient(transport=other, base_url="http://127.0.0.1") as elsewhere:
        assert (await elsewhere.get("/v1/agents/count", headers=bearer("guess"))).status_code == 401


async def test_wrong_keys_slow_down_only_wrong_keys(tmp_path: Path) -> None:
    ids = RandomIds()
    made = generate(ids)
    async with open_rig(tmp_path, host="0.0.0.0", password_kept=hashed(made, ids)) as (kelpie, _):
        _, key = await kelpie.api().api_keys.create(NewKey("never used before", (Scope.write,)))
        async with client_of(kelpie) as client:
            for number in range(FAILURES_MAX + 4):
                invented = bearer(f"kelpie-key_{number:032x}_{'A' * 43}")
                status = (await client.get("/v1/agents/count", headers=invented)).status_code
                assert status == (401 if number < FAILURES_MAX else 429)
            repeated = await client.get("/v1/agents/count", headers=invented)
            assert repeated.status_code == 429 and int(repeated.headers["Retry-After"]) >= 1
            assert (await client.get("/v1/agents/count", headers=bearer(key))).status_code == 200
            kelpie.runtime.authenticator.forget()  # as after ten seconds
            assert (await client.get("/v1/agents/count", headers=bearer(key))).status_code == 200
            first = await client.get("/v1/agents/count", headers=bearer(made))
            assert first.status_code == 200, "wrong keys are no guesses at the password"
            agent = (await client.post("/v1/agents/", json={}, headers=bearer(key))).json()["id"]
            policy = [{"type": "agent", "id": agent, "access": ["read_agent"]}]
            asked = {"hostname": "https://app.example", "policy": policy}
            token = (await client.post("/v1/client-side-access-tokens", json=asked, headers=bearer(key))).json()[
                "token"
            ]
            assert (await client.get(f"/v1/agents/{agent}", headers=bearer(token))).status_code == 200


async def test_a_wrong_key_is_looked_up_once(locked: Kelpie, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[KeyId] = []
    find = api_keys.find

    def counted(tx: Tx, key_id: KeyId) -> Any:
        looked_up.append(key_id)
        return find(tx, key_id)

    monkeypatch.setattr(api_keys, "find", counted)
    invented = f"kelpie-key_{7:032x}_{'A' * 43}"
    async with shown(locked, invented) as client:
        for _ in range(3):
            assert (await client.get("/v1/agents/count")).status_code == 401
        assert len(looked_up) == 1


async def test_a_named_proxy_tells_who_the_client_is_and_nobody_else_does(tmp_path: Path) -> None:
    proxies = TrustedProxies(["10.0.0.1"])
    async with open_rig(tmp_path, password="open sesame", trusted_proxies=("10.0.0.1",)) as (kelpie, _):
        app = ForwardedClient(create_app(kelpie), proxies, connection_limits(kelpie.settings, 1024))

        async def status(peer: str, client: str, text: str) -> int:
            transport = httpx.ASGITransport(app, client=(peer, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asking:
                headers = {**bearer(text), "X-Forwarded-For": client}
                return (await asking.get("/v1/agents/count", headers=headers)).status_code

        for number in range(FAILURES_MAX):
            assert await status("10.0.0.1", f"{number}.2.3.4, 8.8.8.8", "guess") == 401
        assert await status("10.0.0.1", "9.2.3.4, 8.8.8.8", "guess") == 429, "the client's own claim changes nothing"
        assert await status("10.0.0.1", "8.8.4.4", "guess") == 401, "another client of the proxy need not wait"
        for number in range(FAILURES_MAX):
            assert await status("10.0.0.2", f"8.8.{number}.1", "guess") == 401
        assert await status("10.0.0.2", "8.8.99.1", "guess") == 429, "nobody named this one"


# --- who is acted for -------------------------------------------------------------------------------------------------


async def test_the_operator_acts_for_any_user_and_a_key_for_its_own(locked: Kelpie) -> None:
    doors = locked.api()
    organization = await doors.organizations.create("acme")
    joe, ann = [await doors.users.create(name, organization.id) for name in ("joe", "ann")]
    key = await make_key(locked, user_id=joe.id)
    async with shown(locked, "open sesame") as operator:
        mine = await make_agent(operator, name="of the operator")
        theirs = await operator.post("/v1/agents/", json={"name": "of joe"}, headers={"user_id": joe.id})
        assert theirs.json()["created_by_id"] == joe.id
        assert [agent["name"] for agent in (await operator.get("/v1/agents/")).json()] == ["of the operator"]
        assert (await operator.get("/v1/agents/count", headers={"user_id": FOREIGN})).json() == 1
        assert (await operator.get("/v1/agents/count", headers={"user_id": "bad"})).status_code == 400
    async with shown(locked, key["key"]) as program:
        assert [agent["name"] for agent in (await program.get("/v1/agents/")).json()] == ["of joe"]
        assert (await program.get(f"/v1/agents/{mine['id']}")).status_code == 404
        assert (await program.get("/v1/agents/count", headers={"user_id": joe.id})).json() == 1
        for other in (ann.id, DEFAULT_USER, FOREIGN):
            answer = await program.get("/v1/agents/count", headers={"user_id": other})
            assert answer.status_code == 403 and "user_id" in answer.json()["detail"]
        made = (await program.post("/v1/agents/", json={"name": "by key"})).json()
        assert made["created_by_id"] == joe.id


async def client_with(kelpie: Kelpie, text: str, path: str) -> int:
    """The status of a request with this credential."""
    async with shown(kelpie, text) as client:
        return (await client.get(path)).status_code


async def test_a_user_who_moves_or_goes_is_noticed_at_once(locked: Kelpie) -> None:
    doors = locked.api()
    one, two = [await doors.organizations.create(name) for name in ("one", "two")]
    joe = await doors.users.create("joe", one.id)
    key = await make_key(locked, user_id=joe.id)
    async with shown(locked, "open sesame", {"user_id": joe.id}) as as_joe, shown(locked, key["key"]) as program:
        agent = await make_agent(as_joe, name="in one")
        assert (await program.get("/v1/agents/count")).json() == 1
        policy = {
            "hostname": "https://app.example",
            "policy": [{"type": "agent", "id": agent["id"], "access": ["read_agent"]}],
        }
        token = (await as_joe.post("/v1/client-side-access-tokens", json=policy)).json()["token"]
        assert await client_with(locked, token, f"/v1/agents/{agent['id']}") == 200
        await doors.users.update(joe.id, None, two.id)
        assert (await as_joe.get("/v1/agents/count")).json() == 0
        assert (await program.get("/v1/agents/count")).status_code == 401, "it was a key to the old organization"
        assert await client_with(locked, token, f"/v1/agents/{agent['id']}") == 401, "and so was the token"
        await make_agent(as_joe, name="in two")
        await doors.users.delete(joe.id)
        assert (await as_joe.get("/v1/agents/")).json() == [], "an unknown user is the default one"
