"""Who may ask, and how much: attacks that must fail before anything happens."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from kelpie.server.edge.guard import RequestGuard, RequestLog, host_of
from kelpie.server.http.limits.body_limits import BodyLimits
from kelpie.world.ids import RandomIds
from tests.server.rig import client_of, open_rig

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8283", "localhost", "LOCALHOST:1", "[::1]:8283", "127.8.9.10", "localhost:8283"]
)
async def test_names_of_this_machine_are_answered(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/v1/health/", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(("number", "status"), [(1, 200), (70, 431)])
async def test_headers_are_bounded(client: httpx.AsyncClient, number: int, status: int) -> None:
    headers = {f"x-{n}": "v" * 1000 for n in range(number)}
    assert (await client.get("/v1/agents/count", headers=headers)).status_code == status


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8283",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "0.0.0.0",
        "10.0.0.1",
        "",
        "[::2]",
    ],
)
async def test_a_rebound_name_is_refused(client: httpx.AsyncClient, host: str) -> None:
    answer = await client.get("/v1/health/", headers={"Host": host})
    assert answer.status_code == 403
    assert "only requests to a local host name" in answer.json()["detail"]


async def test_a_server_that_asks_for_a_credential_answers_to_any_name_and_any_page(tmp_path: Path) -> None:
    # Nothing is lost by that: a page has no credential unless somebody gave it one.
    elsewhere = {"Host": "kelpie.internal:8283", "Origin": "https://app.example"}
    async with open_rig(tmp_path, host="0.0.0.0", password="pw") as (kelpie, _), client_of(kelpie) as client:
        assert (await client.get("/v1/health/", headers=elsewhere)).status_code == 200
        assert (await client.get("/v1/agents/", headers=elsewhere)).status_code == 401
        told = await client.get("/v1/agents/", headers={**elsewhere, "Authorization": "Bearer pw"})
        assert told.status_code == 200 and told.headers["access-control-allow-origin"] == "https://app.example"
        assert "access-control-allow-credentials" not in told.headers


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://[",
        "http://[x",
        "localhost",
        "null",
        "http://localhost.evil.example",
        "",
        "file://",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_a_page_of_another_site_cannot_use_the_server(
    client: httpx.AsyncClient, kelpie: Kelpie, origin: str, method: str
) -> None:
    answer = await client.request(method, "/v1/agents/", headers={"Origin": origin, **JSON}, content=b"{}")
    assert answer.status_code == 403
    assert await kelpie.api().agents.count() == 0


async def test_a_simple_form_post_from_another_site_changes_nothing(client: httpx.AsyncClient, kelpie: Kelpie) -> None:
    # What a hidden form sends: no preflight, a content type that needs none, an Origin.
    headers = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    assert (await client.post("/v1/agents/", headers=headers, content=b'{"name":"x"}')).status_code == 403
    # The same without an Origin, from a browser that only tells the site.
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Content-Type": "text/plain"}
    assert (await client.post("/v1/agents/", headers=headers, content=b'{"name":"x"}')).status_code == 403
    assert await kelpie.api().agents.count() == 0


async def test_a_cross_site_image_is_refused_but_a_link_is_followed(client: httpx.AsyncClient) -> None:
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert (await client.get("/v1/agents/", headers=image)).status_code == 403
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert (await client.get("/docs", headers=link)).status_code == 200


async def test_a_page_of_this_machine_may_and_is_told_so(client: httpx.AsyncClient) -> None:
    origin = "http://localhost:3000"
    answer = await client.get("/v1/agents/count", headers={"Origin": origin})
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == origin
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "PATCH",
        "Access-Control-Request-Headers": "x-stainless-os",
    }
    preflight = await client.options("/v1/agents/", headers=asked)
    assert preflight.status_code == 200 and preflight.headers["access-control-allow-origin"] == origin
    assert answer.headers["access-control-allow-credentials"] == "true"


@pytest.mark.parametrize("path", ["/v1/agents/?name=%00", "/v1/blocks/?label_search=a%00b"])
async def test_nul_in_the_address_is_refused(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 400


# --- size and time ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with open_rig(tmp_path, body_bytes_max=1000) as (kelpie, _), client_of(kelpie) as client:
        yield client


async def test_an_oversized_body_is_refused_by_its_length(small: httpx.AsyncClient) -> None:
    answer = await small.post("/v1/agents/", content=b"x" * 1001, headers=JSON)
    assert answer.status_code == 413
    assert "1000 bytes" in answer.json()["detail"] and "KELPIE_BODY_BYTES_MAX" in answer.json()["detail"]


async def test_an_oversized_body_without_a_length_is_cut_off(small: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 100
            assert sent < 10_000, "the server kept reading"
            yield b"x" * 100

    answer = await small.post("/v1/agents/", content=endless(), headers=JSON)
    assert answer.status_code == 413


async def test_a_body_of_just_the_size_is_taken(small: httpx.AsyncClient) -> None:
    raw = b'{"name": "a"}'
    answer = await small.post("/v1/agents/", content=raw + b" " * (1000 - len(raw)), headers=JSON)
    assert answer.status_code == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "٣", "9" * 30])
async def test_lengths_that_lie(small: httpx.AsyncClient, length: str) -> None:
    headers = {**JSON, "Content-Length": length.encode()}
    answer = await small.post("/v1/agents/", content=b"{}", headers=headers)
    assert answer.status_code in (400, 413)


async def test_a_body_that_stops_coming_is_not_waited_for(tmp_path: Path) -> None:
    async def stalls() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with open_rig(tmp_path, stall_s=0.01) as (kelpie, _), client_of(kelpie) as client:
        async with asyncio.timeout(60):
            assert (await client.post("/v1/agents/", content=stalls(), headers=JSON)).status_code == 408
        assert await kelpie.api().agents.count() == 0


# --- tracing ----------------------------------------------------------------------------------------------------------


async def test_a_request_id_is_taken_over_or_made(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/health/", headers={"X-Request-Id": "mine-1"})
    assert answer.headers["X-Request-Id"] == "mine-1"
    made = (await client.get("/v1/health/")).headers["X-Request-Id"]
    assert made and made != (await client.get("/v1/health/")).headers["X-Request-Id"]


@pytest.mark.parametrize("given", ["a b", "x" * 129, "a\tb", "<script>"])
async def test_a_strange_request_id_is_replaced(client: httpx.AsyncClient, given: str) -> None:
    assert (await client.get("/v1/health/", headers={"X-Request-Id": given})).headers["X-Request-Id"] != given


async def test_refusals_have_a_request_id_too(client: httpx.AsyncClient) -> None:
    assert "X-Request-Id" in (await client.get("/v1/health/", headers={"Host": "evil.example"})).headers


async def test_what_nobody_caught_is_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("a secret")

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(RequestLog(broken, RandomIds())), base_url="http://127.0.0.1"
    ) as client:
        with caplog.at_level(logging.INFO):
            answer = await client.get("/")
    assert (answer.status_code, answer.json()) == (
        500,
        {"detail": "An unknown error occurred", "code": "internal_error"},
    )
    assert "X-Request-Id" in answer.headers


async def test_web_sockets_are_closed() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def never(*_: Any) -> None:
        raise AssertionError

    await RequestGuard(never, [], BodyLimits(images=10, plain=10, uploads=10, hooks=10))(
        {"type": "websocket"}, never, send
    )
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    ("authority", "host"),
    [("a:1", "a"), ("A", "a"), ("[::1]:2", "::1"), ("[::1]", "::1"), ("", ""), (" x ", "x"), ("::1", "")],
)
def test_host_of(authority: str, host: str) -> None:
    assert host_of(authority) == host
