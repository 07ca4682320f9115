"""The proxy through which code in a cell reaches the web: HTTP requests and TLS tunnels to the allowed hosts.

A name is resolved once, and the proxy connects to the address it checked, so a name that changes its address leads
nowhere else. Every request has a connection of its own, and its head names the allowed host and no other. No connection
outlives its cell, which bounds how long one can take.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from kelpie.core.public_addresses import is_address, is_public
from kelpie.core.tools.egress_rules import EgressEntry, allows, entries
from kelpie.observe import logs
from kelpie.world.egress.proxy_request import ProxyRefusal, ProxyRequest, read
from kelpie.world.egress.upstream import UpstreamProxies
from kelpie.world.own_addresses import is_own

HEAD_BYTES_MAX = 64 * 1024
HEAD_S = 30.0
CONNECT_S = 15.0
CONNECTIONS_MAX = 64  # of one cell at once
LOOK_UPS_MAX = 4  # of one cell at once
CHUNK_BYTES = 64 * 1024
_TLS_HANDSHAKE = 0x16

_log = logs.get("egress")
# Names that no resolver answers block these threads, and not those that the server works with.
_threads = ThreadPoolExecutor(8, thread_name_prefix="egress")

Resolve = Callable[[str, int], Awaitable[list[str]]]


async def look_up(host: str, port: int) -> list[str]:
    """The addresses of a name, in the system's order. Raises OSError."""

    def ask() -> list[str]:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise OSError("not a valid host name") from error
        return list(dict.fromkeys(str(each[4][0]) for each in found))

    return await asyncio.get_running_loop().run_in_executor(_threads, ask)


class EgressProxy:
    """Answers one listener; with None for the hosts, every host and port is allowed. `private` allows addresses that
    are not public, `inside` allows them for these hosts only. `permitted` are the only hosts that the operator permits;
    without any, all. `upstream` proxies are asked for every host that they are set for. The last refusal is stored for
    the error report."""

    def __init__(
        self,
        hosts: Sequence[str] | None,
        *,
        private: bool = False,
        inside: Sequence[EgressEntry] = (),
        permitted: Sequence[EgressEntry] = (),
        upstream: UpstreamProxies | None = None,
        resolve: Resolve = look_up,
    ) -> None:
        self.refused: str | None = None
        self._listed = entries(hosts) if hosts is not None else None
        self._inside = inside
        self._permitted = permitted
        self._private = private
        self._upstream = upstream or UpstreamProxies()
        self._resolve = resolve
        self._server: asyncio.Server | None = None
        self._looking = asyncio.Semaphore(LOOK_UPS_MAX)
        self._answering: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket) -> "EgressProxy":
        self._server = await asyncio.start_server(self._answer, sock=listener, limit=HEAD_BYTES_MAX)
        return self

    async def close(self) -> None:
        """Closes the listener and every connection that came through it."""
        if self._server is not None:
            self._server.close()
        answering = list(self._answering)
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)

    def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._answering) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._answered(reader, writer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                asked = read(await reader.readuntil(b"\r\n\r\n"))
            await self._carry(asked, reader, writer)
        except ProxyRefusal as refused:
            body = f"{refused}\n".encode()
            head = f"HTTP/1.1 {refused.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
            with suppress(OSError):
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
            pass  # one of the two went away, or said nothing that can be understood
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            writer.close()

    async def _carry(self, asked: ProxyRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._check_listed(asked.host, asked.port)
        upstream = self._upstream.of(asked)
        if upstream is None:
            there_reader, there = await self._connect(asked.host, asked.port)
        else:
            async with asyncio.timeout(CONNECT_S):
                there_reader, there = await upstream.open(asked)
        try:
            if not asked.tunnel:
                if upstream is None:
                    there.write(asked.head)
                await _until_answered(_some(reader, there, asked.body_bytes), _all(there_reader, writer))
                return
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            first = await reader.read(CHUNK_BYTES)
            if first[:1] == bytes([_TLS_HANDSHAKE]):
                there.write(first)
                await _until_answered(_all(reader, there), _all(there_reader, writer))
        finally:
            there.transport.abort()

    def _check_listed(self, host: str, port: int) -> None:
        """Raises ProxyRefusal."""
        if self._listed is not None and not allows(self._listed, host, port):
            _log.warning(
                "egress_host_refused", "Tool asked for a host that is not on its allow list", host=host, port=port
            )
            raise self._no(f"This tool may not reach {host} at port {port}: the host is not on its allow list.")
        if self._permitted and not allows(self._permitted, host, port):
            _log.warning(
                "egress_host_not_permitted",
                "Tool asked for a host that limits.egress does not list",
                host=host,
                port=port,
            )
            raise self._no(f"This server does not permit tools to reach {host} at port {port} (KELPIE_TOOL_EGRESS).")

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects to the host of a request. Raises ProxyRefusal."""
        try:
            async with asyncio.timeout(CONNECT_S):
                found = [host] if is_address(host) else await self._addresses(host, port)
                private = self._private or allows(self._inside, host, port)
                if not private and not all(is_public(address) and not is_own(address) for address in found):
                    _log.warning(
                        "egress_address_refused",
                        "Tool asked for a host with a private address or one of this machine",
                        host=host,
                        addresses=found,
                    )
                    raise self._no(
                        f"{host} may not be reached: its address is in a private network or belongs to this machine."
                    )
                return await self._first(found, port)
        except (OSError, TimeoutError) as error:
            raise ProxyRefusal("502 Bad Gateway", f"{host} at port {port} cannot be reached: {error}") from error

    def _no(self, words: str) -> ProxyRefusal:
        self.refused = words
        return ProxyRefusal("403 Forbidden", words)

    async def _addresses(self, host: str, port: int) -> list[str]:
        async with self._looking:
            return await self._resolve(host, port)

    async def _first(self, found: Sequence[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the first of the addresses that accepts one. Raises OSError."""
        failed: OSError = OSError("the name has no address")
        for address in found:
            try:
                return await asyncio.open_connection(address, port, limit=HEAD_BYTES_MAX)
            except OSError as error:
                failed = error
        raise failed


async def _until_answered(up: Coroutine[Any, Any, None], down: Coroutine[Any, Any, None]) -> None:
    """Copies both directions until the host has sent everything. Raises OSError."""
    asking, answering = asyncio.ensure_future(up), asyncio.ensure_future(down)
    try:
        await asyncio.wait((asking, answering), return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            asking.result()
        await answering
    finally:
        asking.cancel()
        answering.cancel()
        await asyncio.wait((asking, answering))


async def _some(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int) -> None:
    while count:
        chunk = await reader.read(min(CHUNK_BYTES, count))
        if not chunk:
            return
        writer.write(chunk)
        await writer.drain()
        count -= len(chunk)


async def _all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
