"""The proxy of cells over real sockets: what it lets through, what it refuses; a name cannot change its mind."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from kelpie.core.tools.egress_rules import entries
from kelpie.world.egress.proxy import CONNECTIONS_MAX, EgressProxy, Resolve, look_up

DEADLINE_S = 60.0


class Origin:
    """A server that keeps what it was asked and says `hello`."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.port = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1)
        if first == b"\x16":  # as TLS begins
            writer.write(first + await reader.read(100))
            writer.close()
            return
        head = first + await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
        self.bodies.append(await reader.readexactly(size))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()


@asynccontextmanager
async def _origin() -> AsyncIterator[Origin]:
    origin = Origin()
    server = await asyncio.start_server(origin, "127.0.0.1", 0)
    origin.port = server.sockets[0].getsockname()[1]
    try:
        yield origin
    finally:
        server.close()


@asynccontextmanager
async def _proxy(
    hosts: Sequence[str], *, private: bool = True, resolve: Resolve = look_up
) -> AsyncIterator[tuple[str, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    proxy = await EgressProxy(hosts, private=private, resolve=resolve).serve(listener)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield address
    finally:
        await proxy.close()


async def _ask(address: tuple[str, int], sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    return answer


async def _here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_a_request_reaches_the_host_it_names_with_that_host_in_its_head() -> None:
    async with _origin() as origin, _proxy([f"ok.test:{origin.port}"], resolve=_here) as address:
        url = f"http://ok.test:{origin.port}/path?x=1"
        head = f"POST {url} HTTP/1.1\r\nHost: other.test\r\nProxy-Authorization: x\r\nContent-Length: 3\r\n\r\nabc"
        answer = await _ask(address, head.encode())
    assert answer.endswith(b"hello")
    assert origin.heads[0].startswith(b"POST /path?x=1 HTTP/1.1\r\nHost: ok.test:")
    assert b"other.test" not in origin.heads[0] and b"Proxy" not in origin.heads[0]
    assert origin.bodies == [b"abc"]


async def test_what_is_sent_after_the_body_reaches_nobody() -> None:
    async with _origin() as origin, _proxy([f"ok.test:{origin.port}"], resolve=_here) as address:
        one = f"GET http://ok.test:{origin.port}/ HTTP/1.1\r\n\r\nGET /second HTTP/1.1\r\nHost: hidden\r\n\r\n"
        await _ask(address, one.encode())
    assert len(origin.heads) == 1
    assert origin.bodies == [b""]


async def test_a_tunnel_carries_tls_and_nothing_else() -> None:
    async with _origin() as origin, _proxy([f"ok.test:{origin.port}"], resolve=_here) as address:
        connect = f"CONNECT ok.test:{origin.port} HTTP/1.1\r\n\r\n".encode()
        for sent, back in ((b"\x16\x03\x01hello", b"\x16\x03\x01hello"), (b"SSH-2.0-x\r\n", b"")):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(connect)
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(sent)
            assert await reader.read() == back
            writer.close()
    assert origin.heads == []


@pytest.mark.parametrize(
    "asked",
    [
        "GET http://other.test/ HTTP/1.1",
        "CONNECT other.test:443 HTTP/1.1",
        "CONNECT ok.test:22 HTTP/1.1",
        "CONNECT 127.0.0.1:80 HTTP/1.1",
        "CONNECT 169.254.169.254:80 HTTP/1.1",
    ],
)
async def test_a_host_that_is_not_listed_is_refused_before_it_is_looked_up(asked: str) -> None:
    async def never(host: str, port: int) -> list[str]:
        raise AssertionError("looked up")

    async with _proxy(["ok.test"], resolve=never) as address:
        answer = await _ask(address, f"{asked}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"may not reach" in answer


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fd00::1", "::ffff:127.0.0.1"])
async def test_a_listed_name_that_leads_inside_is_refused(address: str) -> None:
    async def inside(host: str, port: int) -> list[str]:
        return ["93.184.216.34", address]

    async with _proxy(["*"], private=False, resolve=inside) as proxy:
        answer = await _ask(proxy, b"GET http://rebound.test/ HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ") and b"private network" in answer


async def test_a_name_is_looked_up_once_and_what_was_looked_at_is_connected_to() -> None:
    """A name that is public when it is checked and private when it is used would get past a second look."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    async def rebinding(host: str, port: int) -> list[str]:
        return answers.pop(0)

    async with _origin() as origin, _proxy(["*"], resolve=rebinding) as address:
        await _ask(address, b"GET http://rebound.test/ HTTP/1.1\r\n\r\n")
        assert answers == [["127.0.0.2"]]
        assert origin.heads == []


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET ftp://ok.test/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://user@ok.test/ HTTP/1.1\r\n\r\n", b"400"),
        (b"POST http://ok.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"POST http://ok.test/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (b"POST http://ok.test/ HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"\xff\xfe nonsense\r\n\r\n", b"400"),
        (b"GET http://ok.test/ HTTP/1.1\r\nA: b\nHost: other.test\r\n\r\n", b"400"),
        (b"GET http://ok.test/ HTTP/1.1\r\nA: b\n\nGET /second HTTP/1.1\nHost: other.test\r\n\r\n", b"400"),
        (b"GET http://ok.test/ HTTP/1.1\r\nA: b\rHost: other.test\r\n\r\n", b"400"),
        (b"GET http://ok.test/ HTTP/1.1\r\nA: b\r\n Host: other.test\r\n\r\n", b"400"),
        (b"GET http://ok.test/ HTTP/1.1\r\nHost : other.test\r\n\r\n", b"400"),
        (b"GET http://ok.test/ HTTP/1.1\r\nno field\r\n\r\n", b"400"),
        (b"GET http://ok.test/ HTTP/1.1\r\nTransfer-Encoding\x0b: chunked\r\n\r\n", b"400"),
        (b"GET http://ok.test/x HTTP/1.1\nHost:other.test HTTP/1.1\r\n\r\n", b"400"),
        (b"GET\nX http://ok.test/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://ok.test\\.other.test/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://ok.test%2eother.test/ HTTP/1.1\r\n\r\n", b"400"),
        (b"POST http://ok.test/ HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"400"),
        (b"CONNECT ok.test:99999 HTTP/1.1\r\n\r\n", b"400"),
    ],
)
async def test_what_is_no_request_to_a_proxy_is_refused(asked: bytes, status: bytes) -> None:
    async with _proxy(["ok.test"]) as address:
        assert (await _ask(address, asked)).split(b" ")[1] == status


async def test_closing_ends_what_is_under_way() -> None:
    looked_up = asyncio.Event()

    async def slow(host: str, port: int) -> list[str]:
        looked_up.set()
        await asyncio.sleep(DEADLINE_S)
        return []

    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    proxy = await EgressProxy(["ok.test"], resolve=slow).serve(listener)
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"CONNECT ok.test:443 HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(DEADLINE_S):
        await looked_up.wait()
        await proxy.close()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    with pytest.raises(OSError):
        await asyncio.open_connection(*address)


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost.", "[::1]"])
async def test_other_ways_of_writing_this_machine_lead_nowhere(host: str) -> None:
    async with _proxy(["*"], private=False) as address:
        answer = await _ask(address, f"GET http://{host}/ HTTP/1.1\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"403", b"502"), answer


async def test_a_name_that_can_be_none_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with _proxy(["*"], private=False) as address:
        answer = await _ask(address, b"GET http://" + b"a" * 70 + b".test/ HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ") and b"not a valid host name" in answer
    assert not caplog.records


async def test_the_name_of_a_host_is_written_anew() -> None:
    async with _origin() as origin, _proxy([f"ok.test:{origin.port}"], resolve=_here) as address:
        await _ask(address, f"GET http://OK.test.:{origin.port} HTTP/1.0\r\n\r\n".encode())
    assert origin.heads[0].startswith(f"GET / HTTP/1.1\r\nHost: ok.test:{origin.port}\r\n".encode())


async def test_connections_of_one_cell_are_bounded() -> None:
    async with _proxy(["ok.test"]) as address:
        held = [await asyncio.open_connection(*address) for _ in range(CONNECTIONS_MAX + 10)]
        for reader, _ in held[CONNECTIONS_MAX:]:
            with suppress(ConnectionError):
                assert await reader.read(1) == b""
        for _, writer in held:
            writer.close()


async def test_a_host_that_ends_first_ends_the_upload() -> None:
    """Else whoever answers early would leave a connection behind that waits for the rest of a body."""
    async with _origin() as origin, _proxy([f"ok.test:{origin.port}"], resolve=_here) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(f"CONNECT ok.test:{origin.port} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x16hello")
        assert await reader.read() == b"\x16hello", "it is closed although this side said nothing of an end"
        writer.close()


async def test_nothing_is_connected_to_once_it_is_closed() -> None:
    resolved, going_on = asyncio.Event(), asyncio.Event()

    async def late(host: str, port: int) -> list[str]:
        resolved.set()
        await going_on.wait()
        return ["127.0.0.1"]

    async with _origin() as origin:
        listener = socket.create_server(("127.0.0.1", 0))
        proxy = await EgressProxy([f"ok.test:{origin.port}"], private=True, resolve=late).serve(listener)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(f"GET http://ok.test:{origin.port}/ HTTP/1.1\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE_S):
            await resolved.wait()
            before = len(asyncio.all_tasks())
            await proxy.close()
            going_on.set()
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
        assert len(asyncio.all_tasks()) < before and origin.heads == []


async def test_a_listed_host_that_the_operator_does_not_permit_is_refused() -> None:
    async def never(host: str, port: int) -> list[str]:
        raise AssertionError("looked up")

    listener = socket.create_server(("127.0.0.1", 0))
    proxy = await EgressProxy(["ok.test"], permitted=entries(["*.example.org"]), resolve=never).serve(listener)
    try:
        answer = await _ask(listener.getsockname(), b"GET http://ok.test/ HTTP/1.1\r\n\r\n")
    finally:
        await proxy.close()
    assert answer.startswith(b"HTTP/1.1 403 ") and b"KELPIE_TOOL_EGRESS" in answer
