"""Requests of clients behind a proxy: each client has its share, and the proxy itself has no share to use up."""

from contextlib import ExitStack

import pytest
from starlette.types import Message, Receive, Scope, Send

from kelpie.core.access.client_addresses import TrustedProxies
from kelpie.server.edge.connection_limits import ConnectionLimits
from kelpie.server.edge.forwarded_client import ForwardedClient
from kelpie.server.http.json_answer import JsonAnswer

PROXIES = TrustedProxies(["10.0.0.0/24", "::ffff:192.168.7.7", "fd00::/8"])


class Ended:
    """A connection that can be ended."""

    def abort(self) -> None:
        raise AssertionError("nobody had to make room")


async def test_each_client_of_a_proxy_has_its_share_while_its_requests_run() -> None:
    limits = ConnectionLimits(100, 2, PROXIES)
    with ExitStack() as running:
        assert running.enter_context(limits.request_of("8.8.8.8")) is None
        with limits.request_of("::ffff:8.8.8.8") as second:
            assert second is None
            with limits.request_of("8.8.8.8") as third:
                assert third is not None and third.code == "address_connections_full"
            with limits.request_of("8.8.4.4") as other:
                assert other is None
            with limits.request_of("8.8.8.8") as fourth:
                assert fourth is not None, "a refused request gives no place back"
        with limits.request_of("8.8.8.8") as fifth:
            assert fifth is None, "the second one has ended"
    with limits.request_of("8.8.8.8") as one, limits.request_of("8.8.8.8") as two:
        assert one is None and two is None


async def test_a_network_of_ipv6_addresses_shares_and_a_proxy_without_a_client_does_not() -> None:
    limits = ConnectionLimits(100, 1, PROXIES)
    with limits.request_of("2001:db8:1:2::1") as one, limits.request_of("2001:db8:1:2:ffff::9") as same:
        assert one is None and same is not None
        with limits.request_of("2001:db8:1:3::1") as next_door:
            assert next_door is None
    with limits.request_of("10.0.0.7") as first, limits.request_of("10.0.0.7") as second:
        assert first is None and second is None


async def test_connections_and_requests_of_one_client_count_together() -> None:
    limits = ConnectionLimits(100, 2, PROXIES)
    proxy, direct = Ended(), Ended()
    assert limits.enter(proxy, "10.0.0.1") is None
    assert limits.enter(direct, "8.8.8.8") is None
    limits.set_busy(direct)
    with limits.request_of("8.8.8.8") as one, limits.request_of("8.8.8.8") as two:
        assert one is None and two is not None
        refusal = limits.enter(Ended(), "8.8.8.8")
        assert refusal is not None and refusal.code == "address_connections_full"
    limits.leave(direct)
    limits.leave(proxy)
    with limits.request_of("8.8.8.8") as one, limits.request_of("8.8.8.8") as two:
        assert one is None and two is None


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", (b"8.8.8.8",), "8.8.8.8"),
        ("10.0.0.1", (b"1.1.1.1", b"8.8.8.8"), "8.8.8.8"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("192.168.7.7", (b"2001:db8::1",), "2001:db8::1"),
        ("::ffff:192.168.7.7", (b"8.8.8.8",), "8.8.8.8"),
        ("fd00::5", (b"::ffff:8.8.8.8",), "8.8.8.8"),
        ("9.9.9.9", (b"8.8.8.8",), "9.9.9.9"),
    ],
)
async def test_the_application_sees_the_client(peer: str, forwarded: tuple[bytes, ...], client: str) -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["client"][0])

    scope = {
        "type": "http",
        "path": "/v1/agents/",
        "client": (peer, 1),
        "headers": [(b"x-forwarded-for", each) for each in forwarded],
    }
    await ForwardedClient(app, PROXIES, ConnectionLimits(100, 2, PROXIES))(scope, _nothing, _nowhere)
    assert seen == [client]
    assert scope["client"] == (peer, 1), "the scope of the proxy stays as it was"


async def test_a_client_without_a_place_gets_health_and_a_refusal_for_the_rest() -> None:
    limits = ConnectionLimits(100, 1, PROXIES)
    asked: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await JsonAnswer({})(scope, receive, send)

    edge = ForwardedClient(app, PROXIES, limits)
    with limits.request_of("8.8.8.8"):
        assert await _status(edge, "/v1/agents/", "8.8.8.8") == (429, b"1")
        assert await _status(edge, "/v1/health/", "8.8.8.8") == (200, None)
        assert await _status(edge, "/latest/health/", "8.8.8.8") == (200, None)
        assert await _status(edge, "/v1/agents/", "8.8.4.4") == (200, None)
    assert await _status(edge, "/v1/agents/", "8.8.8.8") == (200, None)
    assert asked == ["/v1/health/", "/latest/health/", "/v1/agents/", "/v1/agents/"]


async def _status(app: ForwardedClient, path: str, client: str) -> tuple[int, bytes | None]:
    told: list[Message] = []

    async def send(message: Message) -> None:
        told.append(message)

    headers = [(b"x-forwarded-for", client.encode())]
    scope = {"type": "http", "method": "GET", "path": path, "client": ("10.0.0.1", 1), "headers": headers}
    await app(scope, _nothing, send)
    return told[0]["status"], dict(told[0]["headers"]).get(b"retry-after")


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _nowhere(message: Message) -> None:
    pass
