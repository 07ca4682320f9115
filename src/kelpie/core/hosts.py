"""Hosts: which are this machine itself, and the origin that a browser sees in an address."""

from urllib.parse import urlsplit

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
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port in (None, _PORTS[parts.scheme]) else f":{port}")
