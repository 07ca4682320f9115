"""Hosts: checks for loopback and callback addresses, and the origin that a browser sees in an address."""

from urllib.parse import urlsplit

from kelpie.core.errors import ConfigurationError, InvalidInput
from kelpie.core.public_addresses import is_address, is_public

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_INSIDE = (".localhost", ".local", ".internal")
_OCTETS = frozenset(str(number) for number in range(256))
_PORTS = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Checks whether only this machine can reach a server that listens on this host."""
    if host.lower() in LOOPBACK:
        return True
    first, *rest = host.split(".")
    return first == "127" and len(rest) == 3 and all(part in _OCTETS for part in rest)


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


def check_origins(setting: str, listed: tuple[str, ...]) -> None:
    """Raises ConfigurationError for a list that names something else than origins. There is no way to allow all: any
    page that a user opens could then use the server."""
    for each in listed:
        if origin_of(each) is None or urlsplit(each).path not in ("", "/"):
            remedy = f"'{each[:80]}' is not an origin; list origins such as https://app.example.com"
            raise ConfigurationError(setting, remedy)


def check_address(setting: str, url: str) -> None:
    """Raises ConfigurationError for an address that no server can have."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in _PORTS and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise ConfigurationError(setting, f"'{url[:80]}' is not a URL; use a form such as http://127.0.0.1:8000")
