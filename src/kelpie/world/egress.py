"""The proxy through which code in a cell reaches the web: HTTP requests and TLS tunnels to the hosts it may reach.

A name is looked up once and what was looked at is what is connected to, so a name that changes its mind leads nowhere
else. Every request has a connection of its own, and its head names the host that was allowed and no other.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from kelpie.core.egress import Entry, allows, entries
from kelpie.core.hosts import is_address, is_public
from kelpie.observe import logs

HEAD_BYTES_MAX = 64 * 1024
HEAD_S = 30.0
CONNECT_S = 15.0
IDLE_S = 60.0
CONNECTIONS_MAX = 64  # of one cell at once
CHUNK_BYTES = 64 * 1024
_TLS_HANDSHAKE = 0x16
_HOP_BY_HOP = ("connection", "keep-alive", "host", "te", "trailer", "upgrade")

_log = logs.get("egress")

Resolve = Callable[[str, int], Awaitable[list[str]]]


class _Refused(Exception):
    """The request is answered with a status and a sentence."""

    def __init__(self, status: str, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Asked:
    """The head of a request to the proxy."""

    host: str
    port: int
    tunnel: bool
    head: bytes = b""  # what goes to the host, for a plain request
    body_bytes: int = 0


async def look_up(host: str, port: int) -> list[str]:
    """The addresses of a name, in the system's order."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class EgressProxy:
    """Answers one listener. `private` lets addresses through that are not of the internet."""

    def __init__(self, hosts: Sequence[str], *, private: bool = False, resolve: Resolve = look_up) -> None:
        self._listed: tuple[Entry, ...] = entries(hosts)
        self._private = private
        self._resolve = resolve
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, listener: socket.socket) -> "EgressProxy":
        self._server = await asyncio.start_server(self._answer, sock=listener, limit=HEAD_BYTES_MAX)
        return self

    async def close(self) -> None:
        """Ends the listener and every connection that came through it."""
        if self._server is not None:
            self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            async with asyncio.timeout(HEAD_S):
                asked = _read(await reader.readuntil(b"\r\n\r\n"))
            await self._carry(asked, reader, writer)
        except _Refused as refused:
            body = f"{refused}\n".encode()
            head = f"HTTP/1.1 {refused.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
            with suppress(OSError):
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
            pass  # one of the two went away, or said nothing that can be understood
        finally:
            self._open.discard(writer)
            writer.close()

    async def _carry(self, asked: _Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await self._connect(asked.host, asked.port)
        self._open.add(there)
        try:
            if asked.tunnel:
                await _tunnel(reader, writer, there_reader, there)
            else:
                there.write(asked.head)
                await asyncio.gather(_some(reader, there, asked.body_bytes), _all(there_reader, writer))
        finally:
            self._open.discard(there)
            there.close()

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises _Refused."""
        if not allows(self._listed, host, port):
            _log.warning("code in a cell asked for a host that it may not reach", host=host, port=port)
            raise _Refused(
                "403 Forbidden", f"This tool may not reach {host} at port {port}; its egress list names it not."
            )
        try:
            async with asyncio.timeout(CONNECT_S):
                found = [host] if is_address(host) else await self._resolve(host, port)
                if not self._private and not all(is_public(address) for address in found):
                    _log.warning("code in a cell asked for an address that is not public", host=host, addresses=found)
                    raise _Refused("403 Forbidden", f"{host} leads into a private network; only the internet is open.")
                return await self._first(found, port)
        except (OSError, TimeoutError) as error:
            raise _Refused("502 Bad Gateway", f"{host} at port {port} cannot be reached: {error}") from error

    async def _first(self, found: Sequence[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the first of the addresses that takes one. Raises OSError."""
        failed: OSError = OSError("the name has no address")
        for address in found:
            try:
                return await asyncio.open_connection(address, port, limit=HEAD_BYTES_MAX)
            except OSError as error:
                failed = error
        raise failed


def _read(head: bytes) -> _Asked:
    """Raises _Refused."""
    line, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = line.partition(" ")
    target, _, version = rest.rpartition(" ")
    try:
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if not host or not version.startswith("HTTP/1."):
        raise _Refused(
            "400 Bad Request", "This is a proxy: CONNECT host:port, or a method with a whole http:// address."
        )
    if method == "CONNECT":
        return _Asked(host, port or 443, tunnel=True)
    if parts.scheme != "http" or parts.username is not None:
        raise _Refused("400 Bad Request", "Only http:// addresses can be asked for; use CONNECT for https.")
    fields = [(name.strip(), value.strip()) for name, found, value in (text.partition(":") for text in lines) if found]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [
        f"{name}: {value}"
        for name, value in fields
        if name.lower() not in _HOP_BY_HOP and not name.lower().startswith("proxy-")
    ]
    told = "\r\n".join((f"{method} {path} HTTP/1.1", f"Host: {parts.netloc}", *kept, "Connection: close", "", ""))
    return _Asked(host, port or 80, False, told.encode("latin-1"), _length(fields))


def _length(fields: Sequence[tuple[str, str]]) -> int:
    """Of the body. Raises _Refused: a length that two might read differently could hide a second request."""
    named = [value for name, value in fields if name.lower() == "content-length"]
    if any(name.lower() == "transfer-encoding" for name, _ in fields):
        raise _Refused("411 Length Required", "Send the body with a Content-Length.")
    if len(named) > 1 or not all(value.isascii() and value.isdigit() for value in named):
        raise _Refused("400 Bad Request", "Content-Length: must be one whole number.")
    return int(named[0]) if named else 0


async def _tunnel(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    there_reader: asyncio.StreamReader,
    there: asyncio.StreamWriter,
) -> None:
    """Carries TLS both ways, and nothing else. Raises OSError, TimeoutError."""
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    async with asyncio.timeout(IDLE_S):
        first = await reader.read(CHUNK_BYTES)
    if first[:1] != bytes([_TLS_HANDSHAKE]):
        return
    there.write(first)
    back = asyncio.create_task(_all(there_reader, writer))
    try:
        await _all(reader, there)
        await back
    finally:
        back.cancel()


async def _some(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int) -> None:
    while count:
        async with asyncio.timeout(IDLE_S):
            chunk = await reader.read(min(CHUNK_BYTES, count))
        if not chunk:
            return
        writer.write(chunk)
        await writer.drain()
        count -= len(chunk)


async def _all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        async with asyncio.timeout(IDLE_S):
            chunk = await reader.read(CHUNK_BYTES)
        if not chunk:
            break
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
