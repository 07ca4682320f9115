"""The head of a request to the egress proxy, and the head for the host: parsed strictly and written anew.

Anything that two parsers might read differently is refused: it could name another host, or hide a second request.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"[\x21-\x7e]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|[0-9a-f:.]*:[0-9a-f:.]*")
_LENGTH = re.compile(r"[0-9]{1,15}")
_HOP_BY_HOP = ("connection", "keep-alive", "host", "te", "trailer", "upgrade")


class ProxyRefusal(Exception):
    """The proxy answers the request with a status and a sentence."""

    def __init__(self, status: str, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A request to the proxy."""

    host: str
    port: int
    tunnel: bool
    head: bytes = b""  # the head for the host, for a plain request
    body_bytes: int = 0


def read(head: bytes) -> ProxyRequest:
    """Parses a request. Raises ProxyRefusal."""
    line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, _, rest = line.partition(" ")
    target, _, version = rest.rpartition(" ")
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target) or version not in ("HTTP/1.0", "HTTP/1.1"):
        raise _no_proxy_request()
    try:
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise _no_proxy_request() from None
    if not _HOST.fullmatch(host):
        raise _no_proxy_request()
    if method == "CONNECT":
        return ProxyRequest(host, port or PORTS["https"], tunnel=True)
    if parts.scheme != "http" or parts.username is not None:
        raise ProxyRefusal("400 Bad Request", "Only http:// URLs are supported; use CONNECT for https.")
    fields = [_field(text) for text in lines]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    authority = (f"[{host}]" if ":" in host else host) + ("" if port in (None, PORTS["http"]) else f":{port}")
    kept = [
        f"{name}: {value}"
        for name, value in fields
        if name.lower() not in _HOP_BY_HOP and not name.lower().startswith("proxy-")
    ]
    told = "\r\n".join((f"{method} {path} HTTP/1.1", f"Host: {authority}", *kept, "Connection: close", "", ""))
    return ProxyRequest(host, port or PORTS["http"], False, told.encode("latin-1"), _length(fields))


def _no_proxy_request() -> ProxyRefusal:
    return ProxyRefusal("400 Bad Request", "This is a proxy: CONNECT host:port, or a method with a full http:// URL.")


def _field(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
        raise ProxyRefusal("400 Bad Request", "A header must be one line, 'name: value', without control characters.")
    return name, value.strip(" \t")


def _length(fields: Sequence[tuple[str, str]]) -> int:
    named = [value for name, value in fields if name.lower() == "content-length"]
    if any(name.lower() == "transfer-encoding" for name, _ in fields):
        raise ProxyRefusal("411 Length Required", "Send the body with a Content-Length.")
    if len(named) > 1 or not all(_LENGTH.fullmatch(value) for value in named):
        raise ProxyRefusal("400 Bad Request", "Content-Length: must be one whole number.")
    return int(named[0]) if named else 0
