"""OAuth for MCP servers: discovery, PKCE, the issuer, renewal; against an authorization server in the test."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from aiohttp import web

from kelpie.core.errors import McpError, StorageError
from kelpie.mcp.oauth import authorization
from kelpie.mcp.oauth.authorization import OAuthTokens
from kelpie.mcp.oauth.discovery import Discovery
from kelpie.mcp.oauth.grants import OAuthGrant
from kelpie.mcp.oauth.login import OAuthClient
from kelpie.mcp.transports.http_exchange import HttpExchange
from kelpie.mcp.transports.port import TransportLimits
from kelpie.world.http.port import NetworkHttp
from tests.mcp.http_server import HttpServer
from tests.server.rig import client_of, open_rig


class AuthorizationServer:
    """It gives a token for a code, checks PKCE, and renews tokens."""

    def __init__(self, protects: HttpServer) -> None:
        self.url = ""
        self.protects = protects
        self.asked: list[dict[str, str]] = []
        self.life_s = 3600
        self.issuer: str | None = None
        self.registers = True  # clients, when they ask
        self.basic: list[str] = []  # what clients showed at the token endpoint
        self.refuses = False  # every token
        self.replaces = True  # the refresh token, with each renewal
        self._challenge = ""

    async def metadata(self, request: web.Request) -> web.Response:
        if "protected-resource" in request.path:
            resource = f"{self.protects.url}/mcp"
            return web.json_response({"resource": resource, "authorization_servers": [self.url]})
        registration = {"registration_endpoint": f"{self.url}/register"} if self.registers else {}
        return web.json_response(
            registration
            | {
                "issuer": self.issuer or self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
        )

    async def register(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["redirect_uris"][0].endswith("/v1/tools/mcp/oauth/callback")
        return web.json_response({"client_id": "client-1"}, status=201)

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append(form)
        self.basic.append(request.headers.get("authorization", ""))
        if self.refuses:
            return web.json_response({"error": "invalid_grant"}, status=400)
        if form["grant_type"] == "authorization_code":
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == self._challenge
        token = f"token-{len(self.asked)}"
        self.protects.token = token
        first = form["grant_type"] == "authorization_code"
        new = {"refresh_token": f"r-{len(self.asked)}"} if first or self.replaces else {}
        return web.json_response({"access_token": token, "token_type": "Bearer", "expires_in": self.life_s} | new)

    def agree(self, address: str) -> dict[str, str]:
        """What a person is sent back with."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["code_challenge_method"] == "S256" and query["resource"] == f"{self.protects.url}/mcp"
        self._challenge = query["code_challenge"]
        return {"state": query["state"], "code": "code-1", "iss": self.url}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["AuthorizationServer"]:
        app = web.Application()
        app.add_routes([web.post("/register", self.register), web.post("/token", self.token)])
        app.add_routes([web.get("/{path:.*}", self.metadata)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()


class Place:
    def __init__(self, client: httpx.AsyncClient, kelpie: Any, mcp: HttpServer, server: AuthorizationServer) -> None:
        self.client = client
        self.kelpie = kelpie
        self.mcp = mcp
        self.authorization = server

    async def registered(self) -> str:
        config = {"mcp_server_type": "streamable_http", "server_url": f"{self.mcp.url}/mcp"}
        made = await self.client.post("/v1/mcp-servers/", json={"server_name": "web", "config": config})
        return made.json()["id"]

    async def logged_in(self, server: str, **changed: str) -> list[str]:
        """The events of a login in which the person agrees."""
        api, events = self.kelpie.api(), list[str]()
        record = await api.mcp_servers.get(server)
        async for step in api.mcp_logins.connect(record, "http://kelpie.example"):
            events.append(step.event)
            if step.event == "authorization_url":
                back = self.authorization.agree(step.facts["url"]) | changed
                page = await self.client.get("/v1/tools/mcp/oauth/callback", params=back)
                if page.status_code != 200:
                    return [*events, page.text]
        return events


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    mcp = HttpServer("2026-07-28")
    mcp.token = "none yet"
    async with mcp.serving(), AuthorizationServer(mcp).serving() as server:
        mcp.metadata = f"{server.url}/.well-known/oauth-protected-resource"
        async with open_rig(tmp_path, mcp_private=True) as (kelpie, _), client_of(kelpie) as client:
            yield Place(client, kelpie, mcp, server)


async def test_a_person_logs_in_and_the_token_is_renewed(place: Place) -> None:
    server = await place.registered()
    assert (await place.client.get(f"/v1/mcp-servers/{server}/tools")).json() == []
    place.authorization.life_s = 1  # so that it must be renewed at once
    assert await place.logged_in(server) == [
        "connection_attempt",
        "oauth_required",
        "authorization_url",
        "waiting_for_auth",
        "success",
    ]
    first, *renewals = place.authorization.asked
    assert first["grant_type"] == "authorization_code" and first["client_id"] == "client-1"
    assert {each["grant_type"] for each in renewals} == {"refresh_token"}, "an ending token is renewed before use"
    place.mcp.token = "revoked"
    assert (await place.client.patch(f"/v1/mcp-servers/{server}/refresh")).status_code == 200
    stored = await place.kelpie.world.database.read(
        lambda tx: tx.exec_driver_sql("SELECT tokens FROM mcp_oauth").scalar()
    )
    assert "token-" not in stored, "tokens are encrypted"


@pytest.mark.parametrize("replaces", [False, True])
async def test_every_renewal_uses_the_newest_refresh_token(place: Place, replaces: bool) -> None:
    """A server that sends none with a renewal goes on to know the one before (RFC 6749, section 6)."""
    server = await place.registered()
    place.authorization.replaces, place.authorization.life_s = replaces, 1
    await place.logged_in(server)
    for _ in range(2):
        assert (await place.client.patch(f"/v1/mcp-servers/{server}/refresh")).status_code == 200
    _, *renewals = place.authorization.asked
    assert len(renewals) >= 3
    number = range(1, len(renewals) + 1) if replaces else [1] * len(renewals)
    assert [each["refresh_token"] for each in renewals] == [f"r-{each}" for each in number]


@pytest.mark.parametrize("unsaved", [False, True])
async def test_a_renewal_that_ends_late_replaces_no_newer_login(
    place: Place, monkeypatch: pytest.MonkeyPatch, unsaved: bool
) -> None:
    """The authorization server answers a renewal slowly, and somebody logs in meanwhile: the login stays, also when
    the renewed token could not be stored at first."""
    world = place.kelpie.world
    server = await place.registered()
    place.authorization.life_s = 10_000
    assert (await place.logged_in(server))[-1] == "success"
    tokens = OAuthTokens(world, TransportLimits(), private=True)
    before = await tokens.load(server)
    assert before is not None
    newer = replace(before, access_token="of a newer login", refresh_token="new")
    refresh = OAuthClient.refresh

    async def slowly(client: OAuthClient, grant: OAuthGrant, now: int) -> OAuthGrant:
        renewed = await refresh(client, grant, now)
        await tokens.save(server, newer)
        return renewed

    monkeypatch.setattr(OAuthClient, "refresh", slowly)
    if unsaved:
        keep = OAuthTokens._keep
        monkeypatch.setattr(authorization, "KEEP_AGAIN_S", 0.0)

        async def fails(_: OAuthTokens, __: str) -> None:
            monkeypatch.setattr(OAuthTokens, "_keep", keep)
            raise StorageError("the disk is full")

        monkeypatch.setattr(OAuthTokens, "_keep", fails)
    renewed = await tokens.renewed(server, before.access_token)
    assert renewed is not None and renewed.access_token not in (before.access_token, newer.access_token)
    for work in list(tokens._keeping.values()):
        await work
    assert await tokens.load(server) == newer
    assert await OAuthTokens(world, TransportLimits()).load(server) == newer, "so it is stored"
    await tokens.close()
    assert await tokens.load(server) == newer


async def test_a_token_that_is_not_the_spent_one_is_used_without_a_renewal(place: Place) -> None:
    server = await place.registered()
    assert (await place.logged_in(server))[-1] == "success"
    tokens = OAuthTokens(place.kelpie.world, TransportLimits(), private=True)
    grant, asked = await tokens.load(server), len(place.authorization.asked)
    assert await tokens.renewed(server, "an older one") == grant and len(place.authorization.asked) == asked
    both = await asyncio.gather(*(tokens.renewed(server, grant and grant.access_token) for _ in range(3)))
    assert len(place.authorization.asked) == asked + 1, "one renewal serves all that wait for it"
    assert both == [await tokens.load(server)] * 3 and both[0] != grant


async def test_tokens_go_with_the_address_that_they_were_for(place: Place) -> None:
    server = await place.registered()
    assert (await place.logged_in(server))[-1] == "success"
    tokens = OAuthTokens(place.kelpie.world, TransportLimits(), private=True)
    path, config = f"/v1/mcp-servers/{server}", {"mcp_server_type": "streamable_http"}
    same = {**config, "server_url": f"{place.mcp.url}/mcp", "custom_headers": {"x-more": "1"}}
    assert (await place.client.patch(path, json={"server_name": "renamed", "config": same})).status_code == 200
    assert await tokens.load(server) is not None
    other = {**config, "server_url": f"{place.mcp.url}/other"}
    assert (await place.client.patch(path, json={"config": other})).status_code == 200
    assert await tokens.load(server) is None, "another server is never shown them"


async def test_a_client_that_a_person_registered_is_used(place: Place) -> None:
    server = await place.registered()
    place.authorization.registers = False
    told = await place.client.get(f"/v1/mcp-servers/connect/{server}")
    assert "registers no clients" in told.text and "--client-id" in told.text
    client = {"client_id": "by hand", "client_secret": "s&cret"}
    put = await place.client.put(f"/v1/kelpie/mcp-servers/{server}/oauth-client", json=client)
    assert put.status_code == 200 and "cret" not in put.text and put.json()["id"] == server
    assert (await place.logged_in(server))[-1] == "success"
    shown = base64.b64decode(place.authorization.basic[0].removeprefix("Basic ")).decode()
    assert shown == "by%20hand:s%26cret" and "client_secret" not in place.authorization.asked[0]
    everything = await place.kelpie.world.database.read(
        lambda tx: tx.exec_driver_sql("SELECT tokens FROM mcp_oauth").scalar()
    )
    assert "s&cret" not in everything, "the secret is encrypted"
    place.authorization.issuer = place.authorization.url = place.authorization.url.replace("127.0.0.1", "localhost")
    place.mcp.token, place.authorization.refuses = "revoked", True
    refused = await place.client.patch(f"/v1/mcp-servers/{server}/refresh")
    assert "invalid_grant; log in again with `kelpie mcp login`" in refused.text
    assert await place.logged_in(server) == ["connection_attempt", "error"], "the secret is for one issuer only"
    assert {each["grant_type"] for each in place.authorization.asked[1:]} == {"refresh_token"}


async def test_a_client_for_a_server_without_a_login_is_refused(place: Place) -> None:
    config = {"mcp_server_type": "streamable_http", "server_url": f"{place.mcp.url}/mcp", "auth_token": "t"}
    made = (await place.client.post("/v1/mcp-servers/", json={"server_name": "fixed", "config": config})).json()
    put = await place.client.put(f"/v1/kelpie/mcp-servers/{made['id']}/oauth-client", json={"client_id": "c"})
    assert put.status_code == 400 and "fixed token" in put.text
    put = await place.client.put("/v1/kelpie/mcp-servers/mcp_server-no/oauth-client", json={"client_id": "c"})
    assert put.status_code in (404, 422)


async def test_an_answer_of_another_issuer_is_refused(place: Place) -> None:
    server = await place.registered()
    *_, page = await place.logged_in(server, iss="http://evil.example")
    assert "not from" in page
    *_, page = await place.logged_in(server, state="guessed")
    assert "no login waits" in page
    assert place.authorization.asked == [], "no code was sent anywhere"


async def test_metadata_of_another_issuer_is_refused(place: Place) -> None:
    server = await place.registered()
    place.authorization.issuer = "http://evil.example"
    assert await place.logged_in(server) == ["connection_attempt", "error"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/x", "http://169.254.169.254/latest", "file:///etc/passwd", "http://[::1]/"]
)
async def test_an_address_that_a_server_names_is_checked(url: str) -> None:
    exchange = HttpExchange(NetworkHttp(), TransportLimits(), public=True)
    with pytest.raises(McpError, match="OAuth is not possible"):
        await Discovery(exchange, private=False).find(
            "https://mcp.example.com/mcp", f'Bearer resource_metadata="{url}"'
        )
    await exchange.close()


async def test_the_client_document_is_open_to_everybody(place: Place) -> None:
    document = (await place.client.get("/v1/tools/mcp/oauth/client.json")).json()
    assert document["client_id"].endswith("/v1/tools/mcp/oauth/client.json")
    assert document["redirect_uris"] == [document["client_id"].replace("client.json", "callback")]
