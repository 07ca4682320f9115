"""Proxies of the operator, which the egress proxy asks instead of connecting to a host itself.

A cell never learns their addresses or credentials: the server sends both. Such a proxy decides which hosts may be
reached, because only it sees their addresses.
"""

import asyncio
import base64
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from kelpie.core.errors import ToolError
from kelpie.world.egress.proxy_request import PORTS, ProxyRefusal, ProxyRequest

HEAD_BYTES_MAX = 64 * 1024
UNREACHABLE = "The proxy that this server is set to use cannot be reached."
REFUSED = "The proxy that this server is set to use refused the connection to {} ({})."

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class UpstreamProxy:
    """One proxy, reached over HTTP or over TLS."""

    host: str
    port: int
    tls: bool = False
    authorization: str | None = None

    async def open(self, asked: ProxyRequest) -> Streams:
        """A connection on which a tunnel is open or a plain request was sent. Raises ProxyRefusal, OSError."""
        try:
            context = ssl.create_default_context() if self.tls else None
            reader, writer = await asyncio.open_connection(self.host, self.port, limit=HEAD_BYTES_MAX, ssl=context)
        except OSError as error:
            raise ProxyRefusal("502 Bad Gateway", UNREACHABLE) from error
        try:
            writer.write(self._head(asked))
            if asked.tunnel:
                await _tunnel_opened(reader, asked.host)
        except BaseException:  # raised again; the connection must not stay open
            writer.transport.abort()
            raise
        return reader, writer

    def _head(self, asked: ProxyRequest) -> bytes:
        credentials = f"Proxy-Authorization: {self.authorization}\r\n".encode() if self.authorization else b""
        host = f"[{asked.host}]" if ":" in asked.host else asked.host
        authority = (
            host.encode() if not asked.tunnel and asked.port == PORTS["http"] else f"{host}:{asked.port}".encode()
        )
        if asked.tunnel:
            return b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, credentials)
        line, _, rest = asked.head.partition(b"\r\n")
        method, _, path = line.partition(b" ")
        return b"%b http://%b%b\r\n%b%b" % (method, authority, path, credentials, rest)


@dataclass(frozen=True, slots=True)
class UpstreamProxies:
    """The proxies for plain requests and for tunnels, and the hosts that are reached without them (`no_proxy`)."""

    http: UpstreamProxy | None = None
    https: UpstreamProxy | None = None
    direct: tuple[str, ...] = ()

    def of(self, asked: ProxyRequest) -> UpstreamProxy | None:
        """The proxy for a request; None if the host is reached directly."""
        if any(_covers(entry, asked.host, asked.port) for entry in self.direct):
            return None
        return self.https if asked.tunnel else self.http


def upstream_proxy(address: str | None) -> UpstreamProxy | None:
    """Parses the address of a proxy as settings of programs have it. Raises ToolError."""
    if not address:
        return None
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if parts.scheme in PORTS and parts.hostname:
            port = parts.port or PORTS[parts.scheme]
            return UpstreamProxy(
                parts.hostname, port, parts.scheme == "https", _basic(parts.username, parts.password or "")
            )
    except ValueError:
        pass  # it is no address either
    raise ToolError("the proxy that the server's package installer is set to use must have an http:// or https:// URL")


def _basic(user: str | None, password: str) -> str | None:
    if user is None:
        return None
    return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()


def direct_hosts(lists: Sequence[str | None]) -> tuple[str, ...]:
    """The entries of `no_proxy` lists."""
    return tuple(entry for text in lists if text for entry in text.lower().replace(",", " ").split())


def _covers(entry: str, host: str, port: int) -> bool:
    """Checks whether an entry of `no_proxy` names a host: `*`, a name or the end of one, an address or a network."""
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass  # one of them is a name
    name, colon, number = entry.rpartition(":")
    if colon and number.isdigit():
        if int(number) != port:
            return False
        entry = name
    entry = entry.removeprefix("*").lstrip(".")
    return bool(entry) and (host == entry or host.endswith(f".{entry}"))


async def _tunnel_opened(reader: asyncio.StreamReader, host: str) -> None:
    """Raises ProxyRefusal, OSError."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ProxyRefusal("502 Bad Gateway", UNREACHABLE) from error
    status = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(status) < 2 or not status[0].startswith("HTTP/1.") or status[1][:1] != "2":
        seen = status[1][:3] if len(status) > 1 and status[1][:3].isdigit() else "no HTTP answer"
        raise ProxyRefusal("502 Bad Gateway", REFUSED.format(host, seen))
