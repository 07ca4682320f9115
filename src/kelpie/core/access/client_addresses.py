"""Addresses of clients: the network that counts as one client, and the client behind a trusted proxy.

A forwarding header is believed only as far as trusted proxies wrote it: each proxy appends the address that it saw, so
the rightmost address that is no trusted proxy is the client. Everything left of it is the client's own claim.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from kelpie.core.errors import ConfigurationError

HOPS_MAX = 32  # addresses of a forwarding header that are looked at
_NETWORK_BITS = 64  # of the IPv6 network that one customer has
_ADDRESS_CHARS_MAX = 64


def plain_address(text: str) -> IPv4Address | IPv6Address | None:
    """The address in a text, without its zone; an IPv6 address that maps an IPv4 one is that. None if it is none."""
    if len(text) > _ADDRESS_CHARS_MAX:
        return None
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """What counts as one client: an IPv4 address, or the first half of an IPv6 one, which a customer has whole."""
    found = plain_address(address)
    if isinstance(found, IPv6Address):
        return str(IPv6Network((found, _NETWORK_BITS), strict=False))
    return address if found is None else str(found)


class TrustedProxies:
    """Proxies whose forwarding header is believed: addresses and networks."""

    def __init__(self, listed: Iterable[str]) -> None:
        """Raises ValueError for a text that is neither an address nor a network."""
        networks = [_network(each) for each in listed]
        self._v4 = [each for each in networks if isinstance(each, IPv4Network)]
        self._v6 = [each for each in networks if isinstance(each, IPv6Network)]

    def __contains__(self, address: str) -> bool:
        if not self._v4 and not self._v6:
            return False
        found = plain_address(address)
        return found is not None and self._has(found)

    def client(self, peer: str, forwarded: Iterable[str]) -> str:
        """The address of the client of a request.

        `peer` is the other end of the connection, `forwarded` are the values of X-Forwarded-For in their order. The
        result is the peer if it is no trusted proxy, or if what the proxies wrote is no list of addresses.
        """
        if peer not in self:
            return peer
        hops = [hop for value in forwarded for hop in value.split(",")][-HOPS_MAX:]
        client = peer
        for hop in reversed(hops):
            found = plain_address(_without_port(hop.strip()))
            if found is None:
                return peer
            client = str(found)
            if not self._has(found):
                break
        return client

    def _has(self, address: IPv4Address | IPv6Address) -> bool:
        if isinstance(address, IPv4Address):
            return any(address in network for network in self._v4)
        return any(address in network for network in self._v6)


def check_proxies(origin: str, listed: tuple[str, ...]) -> None:
    """Raises ConfigurationError for a list that names something else than addresses and networks."""
    for each in listed:
        try:
            _network(each)
        except ValueError:
            remedy = f"'{each[:80]}' is not an address; use addresses and networks such as 10.0.0.5 or 10.0.0.0/24"
            raise ConfigurationError(origin, remedy) from None


def _network(text: str) -> IPv4Network | IPv6Network:
    found = plain_address(text)
    return ip_network(text if found is None else found)


def _without_port(hop: str) -> str:
    """The address of a hop; some proxies append the port of the client."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
