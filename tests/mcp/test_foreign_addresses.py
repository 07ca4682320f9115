"""Addresses that a server names are strangers' input: none leads to this machine, a private network or another server.

The servers here are at public addresses that nobody reaches; what is asked of them is written down.
"""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from kelpie.core.errors import McpError, McpFault
from kelpie.core.tools.mcp_servers import McpConfig, McpServerType
from kelpie.mcp.client.session import Session
from kelpie.mcp.connections.dialing import Dialer
from kelpie.mcp.connections.limits import ConnectionLimits
from kelpie.mcp.connections.stdio_launcher import StdioLauncher
from kelpie.mcp.oauth.grants import OAuthGrant
from kelpie.mcp.oauth.login import OAuthClient
from kelpie.mcp.transports.http_exchange import HttpExchange
from kelpie.mcp.transports.port import TransportLimits
from tests.mcp.connecting import server_of

SERVER, ISSUER = "https://mcp.example.com", "https://login.example.com"
PLACES = ("http://127.0.0.1:8283/v1/agents", "http://169.254.169.254/latest/meta-data", "http://[::ffff:10.0.0.1]/")
METADATA: dict[str, Any] = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "registration_endpoint": f"{ISSUER}/register",
}
GRANT = OAuthGrant(ISSUER, f"{ISSUER}/authorize", f"{ISSUER}/token", f"{SERVER}/mcp", "client", refresh_token="r")


class Strangers:
    """The network: `answers` says what an address gives. Only connections to public addresses are asked for."""

    def __init__(self, answers: Callable[[httpx.Request], httpx.Response]) -> None:
        self.asked: list[str] = []
        self._answers = answers

    def transport(self, *, public: bool = False) -> httpx.AsyncBaseTransport:
        assert public, "a name may resolve to any address"
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url))
        return self._answers(request)

    @property
    def exchange(self) -> HttpExchange:
        return HttpExchange(self, TransportLimits(), public=True)  # pyright: ignore[reportArgumentType]

    def check(self) -> None:
        """Nobody else was asked."""
        assert self.asked and all(url.startswith((SERVER, ISSUER)) for url in self.asked), self.asked


def authorization(**changed: Any) -> Callable[[httpx.Request], httpx.Response]:
    def answers(request: httpx.Request) -> httpx.Response:
        if "protected-resource" in request.url.path:
            servers = changed.get("authorization_servers", [ISSUER])
            return httpx.Response(200, json={"resource": f"{SERVER}/mcp", "authorization_servers": servers})
        if "authorization-server" in request.url.path:
            return httpx.Response(200, json=METADATA | changed)
        return httpx.Response(201, json={"client_id": "client"})

    return answers


async def begun(strangers: Strangers, challenge: str = "Bearer") -> None:
    client = OAuthClient(strangers.exchange, private=False)
    await client.begin(f"{SERVER}/mcp", challenge, "https://kelpie.example.com", ("s", "v"), 0)


async def test_a_login_asks_only_whom_the_server_names() -> None:
    strangers = Strangers(authorization())
    await begun(strangers)
    strangers.check()


@pytest.mark.parametrize("place", [*PLACES, "file:///etc/passwd", "javascript:alert(1)", "http://localhost/"])
@pytest.mark.parametrize(
    "field", ["authorization_servers", "authorization_endpoint", "token_endpoint", "registration_endpoint"]
)
async def test_no_metadata_leads_inside(field: str, place: str) -> None:
    strangers = Strangers(authorization(**{field: [place] if field == "authorization_servers" else place}))
    with pytest.raises(McpError) as refused:
        await begun(strangers)
    assert refused.value.kind is McpFault.unauthorized
    strangers.check()


@pytest.mark.parametrize("place", PLACES)
async def test_no_challenge_leads_inside(place: str) -> None:
    strangers = Strangers(authorization())
    with pytest.raises(McpError, match="OAuth is not possible"):
        await begun(strangers, f'Bearer resource_metadata="{place}"')
    assert strangers.asked == []


@pytest.mark.parametrize("place", [*PLACES, "https://evil.example.com/token"])
async def test_no_redirect_of_a_login_is_followed_elsewhere(place: str) -> None:
    def everywhere(request: httpx.Request) -> httpx.Response:
        return httpx.Response(307, headers={"location": place})

    strangers = Strangers(everywhere)
    with pytest.raises(McpError, match="redirects to"):
        await begun(strangers)
    with pytest.raises(McpError, match="redirects to"):
        await OAuthClient(strangers.exchange, private=False).refresh(GRANT, 0)
    strangers.check()


@pytest.mark.parametrize("place", PLACES)
async def test_a_stored_login_is_checked_again(place: str) -> None:
    strangers = Strangers(authorization())
    grant = OAuthGrant(ISSUER, f"{ISSUER}/a", place, f"{SERVER}/mcp", "client", refresh_token="r")
    with pytest.raises(McpError, match="OAuth is not possible"):
        await OAuthClient(strangers.exchange, private=False).refresh(grant, 0)
    assert strangers.asked == []


async def opened(strangers: Strangers, config: McpConfig) -> None:
    dialer = Dialer(strangers, StdioLauncher(None, None))  # pyright: ignore[reportArgumentType]
    dialed = dialer(server_of(config), ConnectionLimits())
    session = Session(dialed.transport, lambda: None)
    try:
        await session.open(10.0)
    finally:
        await session.close()


@pytest.mark.parametrize("kind", [McpServerType.streamable_http, McpServerType.sse])
@pytest.mark.parametrize("place", [*PLACES, "http://2130706433/", "http://0x7f.1/", "gopher://example.com/"])
async def test_a_stored_address_is_checked_before_it_is_used(kind: McpServerType, place: str) -> None:
    strangers = Strangers(authorization())
    with pytest.raises(McpError) as refused:
        await opened(strangers, McpConfig(kind, server_url=place, token="secret"))
    assert refused.value.kind is McpFault.unreachable and strangers.asked == []


@pytest.mark.parametrize("kind", [McpServerType.streamable_http, McpServerType.sse])
@pytest.mark.parametrize("place", [*PLACES, "https://evil.example.com/mcp", "//evil.example.com/mcp"])
async def test_no_redirect_of_a_server_takes_the_token_elsewhere(kind: McpServerType, place: str) -> None:
    strangers = Strangers(lambda request: httpx.Response(307, headers={"location": place}))
    with pytest.raises(McpError, match="redirects to"):
        await opened(strangers, McpConfig(kind, server_url=f"{SERVER}/mcp", token="secret"))
    strangers.check()


@pytest.mark.parametrize("place", [*PLACES, "https://evil.example.com/m", "//evil.example.com/m", "http:///m"])
async def test_the_older_transport_posts_to_its_own_server_only(place: str) -> None:
    def stream(request: httpx.Request) -> httpx.Response:
        text = f"event: endpoint\ndata: {place}\n\n"
        return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})

    strangers = Strangers(stream)
    with pytest.raises(McpError, match="another server"):
        await opened(strangers, McpConfig(McpServerType.sse, server_url=f"{SERVER}/sse", token="secret"))
    strangers.check()
