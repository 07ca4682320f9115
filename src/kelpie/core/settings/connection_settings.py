"""Settings of client connections: how many there may be, how long a request head may take, trusted proxies and web
pages."""

from dataclasses import dataclass

from kelpie.core.access.client_addresses import check_proxies
from kelpie.core.access.hosts import check_origins
from kelpie.core.settings.declaration import COUNT_MAX, setting


@dataclass(frozen=True)
class ConnectionSettings:
    """Settings of the connections that clients open to the server."""

    head_s: float = setting(
        "server.head_seconds",
        "How long a new connection may take until the head of its request (request line and headers) is complete.",
        "KELPIE_HEAD_SECONDS",
        default=10.0,
        seconds=True,
    )
    connections_max: int | None = setting(
        "server.connections_max",
        "Maximum number of client connections. Defaults to half of the open files that the process may have, at most "
        "16384. Further connections replace idle ones; if there are none, they may only ask for `/v1/health/`, and all "
        "other requests get a 503.",
        "KELPIE_CONNECTIONS_MAX",
        kind=int,
        low=1,
        high=COUNT_MAX,
    )
    address_connections_max: int | None = setting(
        "server.address_connections_max",
        "Maximum number of connections of one client address (of one /64 network for IPv6); further ones get a 429. "
        "Defaults to half of `server.connections_max`.",
        "KELPIE_ADDRESS_CONNECTIONS_MAX",
        kind=int,
        low=1,
        high=COUNT_MAX,
    )
    trusted_proxies: tuple[str, ...] = setting(
        "server.trusted_proxies",
        "Addresses and networks of reverse proxies, such as `10.0.0.5` or `10.0.0.0/24`. For requests from them the "
        "server takes the client's address from `X-Forwarded-For`; from all others it ignores that header.",
        "KELPIE_TRUSTED_PROXIES",
        default=(),
        check=check_proxies,
    )
    allowed_origins: tuple[str, ...] = setting(
        "server.allowed_origins",
        "Origins of web front ends that may use the API from a browser, such as `https://app.example.com`. Pages of "
        "this machine always may. Other pages may only if the server requires a password, and then without cookies.",
        "KELPIE_ALLOWED_ORIGINS",
        "ACCEPTABLE_ORIGINS",
        default=(),
        check=check_origins,
    )
