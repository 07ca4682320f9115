"""Connections on real sockets: one that does not ask in time is closed, and too many of them keep nobody out."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.access.client_addresses import TrustedProxies
from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import Settings
from kelpie.server.edge.connection_limits import HEALTH_CONNECTIONS_MAX, ConnectionLimits, connection_limits
from tests.server.rig import Puppet, open_rig
from tests.server.test_serving import DEADLINE_S, serving

HEAD_S = 0.5
FOR_EVER_S = 600.0
GET = b"GET /v1/agents/count HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH = b"GET /v1/health/ HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Wire:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """The next answer: its status, headers and JSON."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return (
            int(lines[0].split()[1]),
            headers,
            json.loads(await self.reader.readexactly(int(headers["content-length"]))),
        )

    async def ask(self, request: bytes) -> tuple[int, dict[str, str], Any]:
        self.writer.write(request)
        return await self.answer()

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        return await self.reader.read()

    async def ended(self) -> bool:
        """Waits until the server has ended the connection."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


class Site:
    """A server on a port of its own."""

    def __init__(self, url: str, puppet: Puppet) -> None:
        self.url, self.puppet = httpx.URL(url), puppet
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, request: bytes = b"", *, source: str = "127.0.0.1") -> Wire:
        reader, writer = await asyncio.open_connection(self.url.host, self.url.port, local_addr=(source, 0))
        writer.write(request)
        self._writers.append(writer)
        return Wire(reader, writer)

    async def busy(self, source: str = "127.0.0.1") -> Wire:
        """A connection with a request that the server is answering; it waits for the body `{}`."""
        head = b"POST /v1/agents/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        wire = await self.connect(head + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n", source=source)
        assert b"100 Continue" in await wire.reader.readuntil(b"\r\n\r\n")
        return wire

    async def past_the_deadline(self) -> None:
        """Waits until a connection that was opened now is closed for its silence."""
        assert await (await self.connect(source="127.9.9.9")).rest() == b""

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def site(tmp_path: Path, **settings: Any) -> AsyncIterator[Site]:
    async with open_rig(tmp_path, lifecycle=False, **settings) as (kelpie, puppet), serving(kelpie) as (url, _):
        made = Site(url, puppet)
        async with asyncio.timeout(DEADLINE_S / 2):  # the server has the other half to stop
            try:
                yield made
            finally:
                made.close()


# --- the deadline of a head -------------------------------------------------------------------------------------------


async def test_a_connection_that_does_not_ask_in_time_is_closed(tmp_path: Path) -> None:
    async with site(tmp_path, head_s=HEAD_S) as hasty:
        silent, line, head, blank = [await hasty.connect() for _ in range(4)]
        line.writer.write(b"GET /v1/hea")
        head.writer.write(b"GET /v1/health/ HTTP/1.1\r\nHost: loc")
        blank.writer.write(b"\r\n\r\n")
        assert await silent.rest() == b"", "an answer to nothing could be taken for the answer to the next request"
        for begun in (line, head, blank):
            status, headers, body = await begun.answer()
            assert (status, headers["connection"]) == (408, "close") and "did not arrive in time" in body["detail"]
            assert await begun.rest() == b""


async def test_a_slow_drip_does_not_extend_the_deadline(tmp_path: Path) -> None:
    async with site(tmp_path, head_s=HEAD_S) as hasty:
        wire = await hasty.connect()

        async def drip() -> None:
            wire.writer.write(b"GET /v1/health/ HTTP/1.1\r\nX-Long: ")
            while True:
                wire.writer.write(b"x")
                await asyncio.sleep(HEAD_S / 20)

        dripping = asyncio.create_task(drip())
        try:
            assert (await wire.answer())[0] == 408
        finally:
            dripping.cancel()


async def test_the_next_head_of_a_connection_has_a_deadline_too(tmp_path: Path) -> None:
    async with site(tmp_path, head_s=HEAD_S) as hasty:
        half, blank = await hasty.connect(GET), await hasty.connect(GET)
        assert [(await wire.answer())[0] for wire in (half, blank)] == [200, 200]
        half.writer.write(GET[:20])
        blank.writer.write(b"\r\n")
        # Answered without its body, of which one more byte arrives: it must not hold the connection for ever either.
        unread = await hasty.connect(b"POST /v1/nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        assert (await unread.answer())[0] == 404
        unread.writer.write(b"x")
        for wire in (half, blank, unread):
            assert (await wire.answer())[0] == 408


async def test_an_idle_connection_and_a_request_under_way_have_their_own_time(tmp_path: Path) -> None:
    async with site(tmp_path, head_s=HEAD_S) as hasty:
        idle = await hasty.connect(GET)
        assert (await idle.answer())[0] == 200
        head = b"POST /v1/agents/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
        slow_body = await hasty.connect(head + b"Content-Type: application/json\r\n\r\n{")
        discarded = await hasty.connect(b"POST /v1/nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n")
        assert (await discarded.answer())[0] == 404
        discarded.writer.write(b"x")
        await discarded.writer.drain()
        discarded.writer.write(b"x")
        await hasty.past_the_deadline()
        assert (await idle.ask(GET))[0] == 200
        assert (await discarded.ask(GET))[0] == 200
        slow_body.writer.write(b"}")
        status, _, agent = await slow_body.answer()
        assert status == 200
        gate = asyncio.Event()
        hasty.puppet.script.append(gate)
        body = b'{"input": "hi"}'
        path = f"/v1/agents/{agent['id']}/messages".encode()
        idle.writer.write(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % (path, len(body)))
        idle.writer.write(b"Content-Type: application/json\r\n\r\n" + body)
        await hasty.puppet.waiting.wait()
        await hasty.past_the_deadline()
        gate.set()
        assert (await idle.answer())[0] == 200


class Ended:
    """A connection that remembers whether it had to go."""

    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


# --- how many ---------------------------------------------------------------------------------------------------------


async def test_beyond_the_limit_only_health_is_answered(tmp_path: Path) -> None:
    async with site(tmp_path, head_s=FOR_EVER_S, connections_max=4, address_connections_max=2) as server:
        held = [await server.busy(f"127.0.0.{1 + number % 2}") for number in range(4)]
        patient = await server.connect(source="127.0.0.3")
        status, headers, body = await (late := await server.connect(source="127.0.0.3")).ask(GET)
        assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "1")
        assert "too many connections" in body["detail"] and await late.rest() == b""
        checker = await server.connect(source="127.0.0.4")
        status, headers, body = await checker.ask(HEALTH)
        assert (status, headers["connection"], body["status"]) == (200, "close", "ok") and await checker.rest() == b""
        assert (await held[3].ask(b"{}"))[0] == 200
        assert (await patient.ask(GET))[0] == 200, "it gets a place that became free while it waited"


async def test_idle_connections_make_room_for_new_ones(tmp_path: Path) -> None:
    async with site(tmp_path, head_s=FOR_EVER_S, connections_max=4) as server:
        busy, used = await server.busy("127.0.0.1"), await server.connect(GET, source="127.0.0.2")
        assert (await used.answer())[0] == 200
        silent = [await server.connect(source=f"127.0.1.{number}") for number in range(50)]
        fresh = await server.connect(GET, source="127.0.0.3")
        assert (await fresh.answer())[0] == 200, "silence takes no place from those who ask"
        assert await silent[0].ended() and await used.ended()
        assert (await busy.ask(b"{}"))[0] == 200, "a request under way is left alone"


async def test_a_flood_of_connections_without_a_place_keeps_no_health_check_out(tmp_path: Path) -> None:
    async with site(tmp_path, head_s=FOR_EVER_S, connections_max=4, address_connections_max=4) as server:
        held = [await server.busy() for _ in range(4)]
        flood = [await server.connect(source=f"127.0.1.{number % 50}") for number in range(2 * HEALTH_CONNECTIONS_MAX)]
        assert (await (await server.connect()).ask(HEALTH))[0] == 200
        assert await flood[0].ended(), "the oldest had to go"
        assert (await held[0].ask(b"{}"))[0] == 200, "a connection with a place keeps it"


async def test_one_address_has_a_share(tmp_path: Path) -> None:
    async with site(tmp_path, head_s=FOR_EVER_S, connections_max=20, address_connections_max=3) as server:
        used = await server.connect(GET, source="127.0.0.2")
        assert (await used.answer())[0] == 200
        for _ in range(3):
            await server.busy("127.0.0.2")
        assert await used.ended(), "an idle connection of the same address made room"
        status, headers, body = await (await server.connect(source="127.0.0.2")).ask(GET)
        assert (status, headers["connection"]) == (429, "close") and "Your address" in body["detail"]
        assert (await (await server.connect(source="127.0.0.2")).ask(HEALTH))[0] == 200
        assert (await (await server.connect(source="127.0.0.3")).ask(GET))[0] == 200


async def test_a_trusted_proxy_has_no_share_and_its_clients_have_theirs(tmp_path: Path) -> None:
    settings = {"address_connections_max": 2, "connections_max": 50, "trusted_proxies": ("127.0.0.9",)}
    async with site(tmp_path, head_s=FOR_EVER_S, **settings) as server:
        made = await (await server.connect()).ask(_post("/v1/agents/", b"{}"))
        path = f"/v1/agents/{made[2]['id']}/messages"
        gate = asyncio.Event()
        server.puppet.script.append(gate)
        for _ in range(2):
            (await server.connect(source="127.0.0.9")).writer.write(
                _post(path, b'{"input": "hi"}', "9.9.9.9, 10.1.1.1")
            )
        await server.puppet.waiting.wait()
        spoofed = _post("/v1/agents/", b"{}", "8.8.8.8, 10.1.1.1")
        assert (await (await server.connect(source="127.0.0.9")).ask(spoofed))[0] == 429, "its own claim is ignored"
        for number in range(2, 6):
            other = _post("/v1/agents/", b"{}", f"10.1.1.{number}")
            assert (await (await server.connect(source="127.0.0.9")).ask(other))[0] == 200
        gate.set()


async def test_a_limit_that_the_process_cannot_keep_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="KELPIE_CONNECTIONS_MAX: 900 connections do not fit into the 1024"):
        connection_limits(Settings(connections_max=900), 1024)
    for files in (1024, 65_536):
        limits = connection_limits(Settings(), files)
        taken = 0
        while limits.enter(one := Ended(), f"10.{taken >> 16}.{taken >> 8 & 255}.{taken & 255}") is None:
            limits.set_busy(one)
            taken += 1
        assert taken == min(files // 2, 16_384)


ADDRESSES = st.sampled_from(["1.1.1.1", "2.2.2.2", "3.3.3.3", "10.0.0.1"])  # the last one is a proxy
DEEDS = st.sampled_from(["come", "come", "go", "ask", "rest"])


@given(st.lists(st.tuples(ADDRESSES, DEEDS), max_size=100))
async def test_places_are_counted_exactly(steps: list[tuple[str, str]]) -> None:
    limits = ConnectionLimits(5, 2, TrustedProxies(["10.0.0.1"]))
    placed: dict[Ended, str] = {}
    idle: list[Ended] = []  # the longest idle one first
    for address, deed in steps:
        mine = [each for each, source in placed.items() if source == address]
        if deed == "come":
            full = 429 if address != "10.0.0.1" and len(mine) == 2 else 503 if len(placed) == 5 else None
            leaving = [each for each in idle if full == 503 or each in mine][:1] if full else []
            refusal = limits.enter(new := Ended(), address)
            assert (refusal and refusal.status) == (None if leaving else full)
            assert all(each.aborted for each in leaving)
            for each in leaving:
                del placed[each]
                idle.remove(each)
            if refusal is None:
                placed[new] = address
                idle.append(new)
        elif mine and deed == "go":
            limits.leave(mine[0])
            del placed[mine[0]]
            idle = [each for each in idle if each in placed]
        elif mine and deed == "ask":
            limits.set_busy(mine[0])
            idle = [each for each in idle if each is not mine[0]]
        elif mine and mine[0] not in idle:
            limits.set_idle(mine[0])
            idle.append(mine[0])
    assert not any(each.aborted for each in placed)
    for each in placed:
        limits.leave(each)
    assert [limits.enter(Ended(), address) for address in ("1.1.1.1", "1.1.1.1", "2.2.2.2")] == [None] * 3


def _post(path: str, body: bytes, forwarded: str | None = None) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    lines += [f"X-Forwarded-For: {forwarded}"] if forwarded else []
    return "\r\n".join([*lines, "", ""]).encode() + body
