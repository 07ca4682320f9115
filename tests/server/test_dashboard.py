"""The dashboard's page and files, and its sessions: who may sign in, what a session may do, and what ends it."""

import gzip
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.accounts.sessions import LIFE_S
from kelpie.app import Kelpie
from kelpie.core.time import MICROS_PER_SECOND, as_datetime
from tests.server.rig import client_of, open_rig

PASSWORD = "hush-hush"
PROTECTED: dict[str, Any] = {"host": "0.0.0.0", "password": PASSWORD}
OURS = {"Origin": "http://127.0.0.1:8283", "Sec-Fetch-Site": "same-origin"}
OPERATOR = {"Authorization": f"Bearer {PASSWORD}"}
BROWSER = {"Accept": "text/html,*/*;q=0.8"}


@asynccontextmanager
async def protected(folder: Path, **settings: Any) -> AsyncIterator[tuple[Kelpie, httpx.AsyncClient]]:
    async with open_rig(folder, **PROTECTED | settings) as (kelpie, _), client_of(kelpie) as client:
        yield kelpie, client


async def signed_in(client: httpx.AsyncClient, credential: str) -> httpx.Response:
    answer = await client.post("/session", json={"credential": credential}, headers=OURS)
    assert answer.status_code == 200, answer.text
    return answer


async def make_key(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    made = await client.post("/v1/kelpie/keys", json={"name": "k", "scopes": ["write"]} | fields, headers=OPERATOR)
    assert made.status_code == 200, made.text
    return made.json()


async def test_the_page_has_the_strict_policy_and_its_files_are_cached_and_compressed(
    client: httpx.AsyncClient,
) -> None:
    page = await client.get("/", headers=BROWSER)
    assert page.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    )
    assert page.headers["cache-control"] == "no-cache"
    again = await client.get("/", headers=BROWSER | {"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304 and again.content == b""
    names = re.findall(r'(?:src|href)="(dashboard/[^"]+)"', page.text)
    assert any(name.endswith("main.js") for name in names) and any(name.endswith("app.css") for name in names)
    for name in names:
        file = await client.get(f"/{name}", headers={"Accept-Encoding": "gzip"})
        plain = await client.get(f"/{name}", headers={"Accept-Encoding": "identity"})
        assert file.status_code == 200 and "immutable" in file.headers["cache-control"]
        assert file.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
        assert file.content == plain.content and gzip.compress(plain.content)
        assert int(file.headers["content-length"]) < len(plain.content) or len(plain.content) < 200
    old = await client.get(re.sub(r"dashboard/\w+", "/dashboard/0000", names[0]))
    assert old.status_code == 404 and "reload" in old.text


async def test_files_are_named_relative_to_the_page(client: httpx.AsyncClient) -> None:
    text = (await client.get("/", headers=BROWSER)).text
    assert re.findall(r'(?:src|href)="(/|https?:)', text) == []


async def test_a_server_without_a_password_needs_no_session(client: httpx.AsyncClient) -> None:
    shown = (await client.get("/session")).json()
    assert (shown["login_required"], shown["signed_in"], shown["operator"]) == (False, True, True)
    answer = await client.post("/session", json={"credential": "anything"}, headers=OURS)
    assert answer.status_code == 200 and "set-cookie" not in answer.headers
    stale = await client.get("/v1/agents/", headers={"Cookie": "kelpie-session-8283=kelpie-session_0_0"})
    assert stale.status_code == 200


async def test_the_password_opens_a_session_that_signing_out_ends(tmp_path: Path) -> None:
    async with protected(tmp_path) as (_, client):
        assert (await client.get("/session")).json()["signed_in"] is False
        assert (await client.get("/v1/agents/")).status_code == 401
        answer = await signed_in(client, PASSWORD)
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and f"Max-Age={LIFE_S}" in cookie
        assert "Path=" not in cookie and "Secure" not in cookie and PASSWORD not in cookie
        held = cookie.partition(";")[0]
        assert (await client.get("/session")).json()["operator"] is True
        made = await client.post("/v1/agents/", json={"name": "bea"}, headers=OURS)
        assert made.status_code == 200
        out = await client.delete("/session", headers=OURS)
        assert out.json()["signed_in"] is False and "Max-Age=0" in out.headers["set-cookie"]
        kept = await client.get("/v1/agents/", headers={"Cookie": held})  # by someone who copied it
        assert kept.status_code == 401


async def test_a_session_has_the_rights_of_its_key_and_ends_when_the_key_is_revoked(tmp_path: Path) -> None:
    async with protected(tmp_path) as (_, client):
        key = await make_key(client, scopes=["read"])
        await signed_in(client, key["key"])
        shown = (await client.get("/session")).json()
        assert (shown["operator"], shown["scopes"], shown["key_id"]) == (False, ["read"], key["id"])
        assert (await client.get("/v1/agents/")).status_code == 200
        refused = await client.post("/v1/agents/", json={"name": "bea"}, headers=OURS)
        assert refused.status_code == 403 and "scope 'write'" in refused.json()["detail"]
        assert (await client.delete(f"/v1/kelpie/keys/{key['id']}", headers=OPERATOR)).status_code == 200
        assert (await client.get("/v1/agents/")).status_code == 401
        assert (await client.get("/session")).json()["signed_in"] is False


async def test_a_session_outlives_a_restart_and_ends_with_a_new_password(tmp_path: Path) -> None:
    async with protected(tmp_path) as (_, client):
        cookie = (await signed_in(client, PASSWORD)).headers["set-cookie"].partition(";")[0]
    async with protected(tmp_path) as (_, client):
        assert (await client.get("/v1/agents/", headers={"Cookie": cookie})).status_code == 200
    async with protected(tmp_path, password="another") as (_, client):
        assert (await client.get("/v1/agents/", headers={"Cookie": cookie})).status_code == 401


async def test_a_session_ends_with_its_lifetime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with protected(tmp_path) as (kelpie, client):
        await signed_in(client, PASSWORD)
        now = kelpie.world.clock.now
        monkeypatch.setattr(type(kelpie.world.clock), "now", lambda _: now() + LIFE_S * MICROS_PER_SECOND - 5_000_000)
        assert (await client.get("/v1/agents/")).status_code == 200
        monkeypatch.setattr(type(kelpie.world.clock), "now", lambda _: now() + LIFE_S * MICROS_PER_SECOND + 5_000_000)
        assert (await client.get("/v1/agents/")).status_code == 401


async def test_a_session_of_a_key_that_lasts_longer_ends_with_its_lifetime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with protected(tmp_path) as (kelpie, client):
        now = kelpie.world.clock.now
        begun = now()
        key = await make_key(client, expires_at=as_datetime(begun + 30 * LIFE_S * MICROS_PER_SECOND).isoformat())
        await signed_in(client, key["key"])
        monkeypatch.setattr(type(kelpie.world.clock), "now", lambda _: begun + (LIFE_S - 5) * MICROS_PER_SECOND)
        assert (await client.get("/v1/agents/")).status_code == 200
        monkeypatch.setattr(type(kelpie.world.clock), "now", lambda _: begun + (LIFE_S + 60) * MICROS_PER_SECOND)
        assert (await client.get("/v1/agents/")).status_code == 401


async def test_a_session_ends_with_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with protected(tmp_path) as (kelpie, client):
        now = kelpie.world.clock.now
        end = now() + LIFE_S * MICROS_PER_SECOND // 2
        key = await make_key(client, expires_at=as_datetime(end).isoformat())
        await signed_in(client, key["key"])
        assert (await client.get("/v1/agents/")).status_code == 200
        monkeypatch.setattr(type(kelpie.world.clock), "now", lambda _: end)
        assert (await client.get("/v1/agents/")).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {},
    ],
)
async def test_no_other_page_writes_with_a_session(tmp_path: Path, headers: dict[str, str]) -> None:
    async with protected(tmp_path) as (_, client):
        await signed_in(client, PASSWORD)
        for method, path in (("POST", "/v1/agents/"), ("DELETE", "/session"), ("POST", "/session")):
            refused = await client.request(method, path, json={"name": "x", "credential": PASSWORD}, headers=headers)
            assert refused.status_code == 403 and "own pages" in refused.json()["detail"], (method, path)
        assert (await client.get("/v1/agents/")).json() == []


async def test_another_port_of_this_machine_reads_nothing_with_a_session(tmp_path: Path) -> None:
    async with protected(tmp_path) as (_, client):
        await signed_in(client, PASSWORD)
        read = await client.get(
            "/v1/agents/", headers={"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"}
        )
        assert read.status_code == 403
        direct = await client.get("/v1/agents/", headers={"Sec-Fetch-Site": "none"})  # typed into the address bar
        assert direct.status_code == 200


async def test_a_browser_that_sends_no_sec_fetch_site_is_known_by_its_origin(tmp_path: Path) -> None:
    async with protected(tmp_path) as (_, client):
        await signed_in(client, PASSWORD)
        made = await client.post("/v1/agents/", json={"name": "bea"}, headers={"Origin": "http://127.0.0.1:8283"})
        assert made.status_code == 200


async def test_over_https_the_cookie_is_secure(tmp_path: Path) -> None:
    async with protected(tmp_path) as (_, client):
        headers = {"Origin": "https://kelpie.example", "Sec-Fetch-Site": "same-origin"}
        answer = await client.post("/session", json={"credential": PASSWORD}, headers=headers)
        assert "Secure" in answer.headers["set-cookie"]


async def test_what_is_no_key_and_no_password_opens_no_session(tmp_path: Path) -> None:
    async with protected(tmp_path) as (_, client):
        agent = (await client.post("/v1/agents/", json={"name": "a"}, headers=OPERATOR)).json()
        token = (
            await client.post(
                "/v1/client-side-access-tokens",
                json={
                    "hostname": "http://127.0.0.1:8283",
                    "policy": [{"type": "agent", "id": agent["id"], "access": ["read_messages"]}],
                },
                headers=OPERATOR,
            )
        ).json()["token"]
        session = (await signed_in(client, PASSWORD)).headers["set-cookie"].partition(";")[0].partition("=")[2]
        client.cookies.clear()
        wrong = await client.post("/session", json={"credential": "guess"}, headers=OURS)
        assert wrong.status_code == 401 and "set-cookie" not in wrong.headers
        for credential in (token, session):
            refused = await client.post("/session", json={"credential": credential}, headers=OURS)
            assert refused.status_code == 403 and "API key or the server password" in refused.json()["detail"]
        for body in ({}, {"credential": 5}, {"credential": " "}, [], {"credential": "x" * 5000}):
            invalid = await client.post("/session", json=body, headers=OURS)
            assert invalid.status_code == 400 and "credential" in invalid.text


async def test_the_dashboard_can_be_switched_off(tmp_path: Path) -> None:
    async with protected(tmp_path) as (_, client):
        cookie = (await signed_in(client, PASSWORD)).headers["set-cookie"].partition(";")[0]
    async with protected(tmp_path, dashboard=False) as (_, client):
        page = await client.get("/", headers=BROWSER)
        assert "Kelpie is running" in page.text and "dashboard/" not in page.text
        assert (await client.get("/session", headers=OPERATOR)).status_code == 404
        assert (await client.get("/v1/agents/", headers={"Cookie": cookie})).status_code == 401
