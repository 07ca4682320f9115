"""The transport over real sockets: connections are used again, bounded, and given back whatever happens."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from kelpie.world.http.port import NetworkHttp


class Server:
    """Answers each request when it is let go; counts connections."""

    def __init__(self) -> None:
        self.connections = 0
        self.waiting = 0
        self.arrived = asyncio.Condition()
        self.go = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                async with self.arrived:
                    self.waiting += 1
                    self.arrived.notify_all()
                await self.go.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def until(self, waiting: int) -> None:
        async with asyncio.timeout(10), self.arrived:
            await self.arrived.wait_for(lambda: self.waiting >= waiting)


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, str]]:
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    yield made, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    listening.close()


async def get(transport: httpx.AsyncBaseTransport, url: str) -> str:
    response = await transport.handle_async_request(httpx.Request("GET", url))
    try:
        return (await response.aread()).decode()
    finally:
        await response.aclose()


async def test_one_after_the_other_share_a_connection(server: tuple[Server, str]) -> None:
    made, url = server
    made.go.set()
    transport = NetworkHttp().transport()
    assert [await get(transport, url) for _ in range(5)] == ["ok"] * 5
    assert made.connections == 1
    await transport.aclose()


async def test_many_at_once_get_connections_of_their_own_up_to_the_bound(server: tuple[Server, str]) -> None:
    made, url = server
    transport = NetworkHttp(connections_max=5).transport()
    tasks = [asyncio.create_task(get(transport, url)) for _ in range(12)]
    await made.until(5)
    assert made.connections == 5
    made.go.set()
    assert await asyncio.gather(*tasks) == ["ok"] * len(tasks)
    assert made.connections == 5
    await transport.aclose()


async def test_cancelled_requests_and_unread_bodies_give_their_place_back(server: tuple[Server, str]) -> None:
    made, url = server
    transport = NetworkHttp(connections_max=1).transport()
    cut = asyncio.create_task(get(transport, url))
    await made.until(1)
    cut.cancel()
    await asyncio.gather(cut, return_exceptions=True)
    made.go.set()
    unread = await transport.handle_async_request(httpx.Request("GET", url))
    await unread.aclose()
    assert [await get(transport, url) for _ in range(3)] == ["ok"] * 3
    await transport.aclose()


async def test_what_goes_wrong_has_httpxs_names(server: tuple[Server, str]) -> None:
    answers = [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", b"nonsense\r\n\r\n"]

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers.pop() if answers else b"")  # who is told nothing asks once more
        writer.close()

    transport = NetworkHttp().transport()
    with pytest.raises(httpx.ConnectError):
        await get(transport, "http://127.0.0.1:1/")
    with pytest.raises(httpx.UnsupportedProtocol):
        await get(transport, "ftp://127.0.0.1/")
    listening = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    while answers:
        with pytest.raises(httpx.RemoteProtocolError):
            await get(transport, f"http://127.0.0.1:{port}/")
    listening.close()
    await transport.aclose()


async def test_nothing_is_added_and_no_redirect_is_followed() -> None:
    heads: list[bytes] = []

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(1)
        writer.write(b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\nset-cookie: a=b\r\n")
        writer.write(b"connection: close\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(redirect, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/a%2Fb?c=d%20e"
    transport = NetworkHttp().transport()
    for _ in range(2):
        response = await transport.handle_async_request(
            httpx.Request("POST", url, content=b"x", headers={"x-one": "1"})
        )
        assert response.status_code == 302
        await response.aclose()
    await transport.aclose()
    listening.close()
    lines = [line.lower() for line in heads[1].split(b"\r\n") if line]
    assert lines[0] == b"post /a%2fb?c=d%20e http/1.1"
    assert sorted(line.split(b":")[0] for line in lines[1:]) == [b"content-length", b"host", b"x-one"]
