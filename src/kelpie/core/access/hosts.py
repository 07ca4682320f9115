"""Hosts: checks for loopback and public addresses, and the origin that a browser sees in an address."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from kelpie.core.errors import ConfigurationError, InvalidInput

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_INSIDE = (".localhost", ".local", ".internal")
_OCTETS = frozenset(str(number) for number in range(256))
_PORTS = {"http": 80, "https": 443}
_NAT64 = IPv6Network("64:ff9b::/96")


def is_loopback(host: str) -> bool:
    """Checks whether only this machine can reach a server that listens on this host."""
    if host.lower() in LOOPBACK:
        return True
    first, *rest = host.split(".")
    return first == "127" and len(rest) == 3 and all(part in _OCTETS for part in rest)


def is_public(address: str) -> bool:
    """Checks whether an IP address belongs to the internet, and not to this machine, a private network or the link.

    An IPv6 address that only carries an IPv4 one counts as that IPv4 address.
    """
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        found = _carried(found) or found
    return found.is_global and not found.is_multicast and not found.is_reserved


def _carried(address: IPv6Address) -> IPv4Address | None:
    inside = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
    return IPv4Address(int(address) & 0xFFFFFFFF) if inside is None and address in _NAT64 else inside


def is_address(host: str) -> bool:
    """Checks whether a host is an IP address and not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def check_callback(url: str, *, private: bool) -> None:
    """Raises InvalidInput for an address that the server must not call. A name is resolved only when it is used."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme in _PORTS and parts.port != 0 and parts.username is None
        host = (parts.hostname or "").rstrip(".").lower() if plain else ""
    except ValueError:
        host = ""
    if not host:
        raise InvalidInput("callback_url", "must be a URL such as https://example.com/done")
    outside = is_public(host) if is_address(host) else not host.isdigit() and not host.endswith(_INSIDE)
    if private or (outside and host not in LOOPBACK):
        return
    raise InvalidInput(
        "callback_url", "points to a private network; use a public address, or set KELPIE_CALLBACK_PRIVATE"
    )


def origin_of(url: str) -> str | None:
    """Scheme, host and port of an http address, as a browser sends them in the Origin header; None for anything
    else."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port in (None, _PORTS[parts.scheme]) else f":{port}")


def check_address(setting: str, url: str) -> None:
    """Raises ConfigurationError for an address that no server can have."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in _PORTS and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise ConfigurationError(setting, f"'{url[:80]}' is not a URL; use a form such as http://127.0.0.1:8000")
