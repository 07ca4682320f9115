"""Hosts: which are this machine itself, and the origin that a browser sees in an address."""

from urllib.parse import urlsplit

from kelpie.core.errors import ConfigurationError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_OCTETS = frozenset(str(number) for number in range(256))
_PORTS = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host.lower() in LOOPBACK:
        return True
    first, *rest = host.split(".")
    return first == "127" and len(rest) == 3 and all(part in _OCTETS for part in rest)


def origin_of(url: str) -> str | None:
    """Scheme, host and port of an http address, as a browser tells them as the Origin; None if it is no such thing."""
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
        raise ConfigurationError(setting, f"'{url[:80]}' is no address; write it like http://127.0.0.1:8000")
