"""The event stream as ASGI messages."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kelpie.server.http import sse
from kelpie.server.http.sse import EventStream

DEADLINE_S = 60.0


class Client:
    """The other end of a connection: it may be slow, and it may go away."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self.heard = asyncio.Event()
        self.reads: int | None = None  # messages after which it stops reading

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reading.wait()
        self.got.append(message)
        if self.reads == len(self.got):
            self.reading.clear()
        self.heard.set()

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.got).decode()

    async def hears(self, text: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.text:
                self.heard.clear()
                await self.heard.wait()


class Source:
    """Frames that come when they are told to; knows when it was let go."""

    def __init__(self, *frames: bytes, ends: bool = True) -> None:
        self._frames = frames
        self._ends = ends
        self.closed = asyncio.Event()

    async def __call__(self) -> AsyncIterator[bytes]:
        try:
            for frame in self._frames:
                yield frame
            if not self._ends:
                await asyncio.Event().wait()
        finally:
            self.closed.set()


async def finished(stream: EventStream, client: Client) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await stream({"type": "http"}, client.receive, client.send)


async def test_frames_go_out_unnamed_and_the_response_ends() -> None:
    client, source = Client(), Source(sse.frame({"a": "é\n"}), sse.error({"b": 1}), sse.DONE)
    await finished(EventStream(source()), client)
    head = client.got[0]
    assert head["status"] == 200
    headers = dict(head["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream") and b"content-length" not in headers
    assert client.text == 'data: {"a":"é\\n"}\n\nevent: error\ndata: {"b":1}\n\ndata: [DONE]\n\n'
    assert [message["more_body"] for message in client.got[1:]] == [True, True, True, False]
    assert source.closed.is_set()


async def test_the_first_ping_comes_at_once_and_others_after_silence() -> None:
    client, source = Client(), Source(ends=False)
    pings = iter(range(1000))
    stream = EventStream(source(), ping=lambda: b"ping %d\n\n" % next(pings), ping_s=0.01)
    task = asyncio.create_task(stream({"type": "http"}, client.receive, client.send))
    await client.hears("ping 0")
    await client.hears("ping 2")
    client.gone.set()
    async with asyncio.timeout(DEADLINE_S):
        await task


async def test_without_pings_nothing_comes_before_the_first_frame() -> None:
    client = Client()
    await finished(EventStream(Source(b"data: 1\n\n")()), client)
    assert client.text == "data: 1\n\n"


async def test_a_client_that_goes_away_ends_the_stream_and_lets_the_source_go() -> None:
    client, source = Client(), Source(b"data: 1\n\n", ends=False)
    task = asyncio.create_task(EventStream(source())({"type": "http"}, client.receive, client.send))
    await client.hears("data: 1")
    client.gone.set()
    async with asyncio.timeout(DEADLINE_S):
        await task
    assert source.closed.is_set()


@pytest.mark.parametrize("pinging", [True, False])
async def test_a_client_that_stops_reading_is_dropped(pinging: bool) -> None:
    client, source = Client(), Source(*[b"data: x\n\n"] * 3, ends=False)
    client.reading.clear()
    ping = (lambda: b"data: ping\n\n") if pinging else None
    await finished(EventStream(source(), ping=ping, ping_s=0.01, stall_s=0.02), client)
    assert client.got == []


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_source_with_frames_left_is_closed_with_its_response(leaves: bool) -> None:
    client, source = Client(), Source(*[b"data: x\n\n"] * 3)
    frames = source()  # held, so that the garbage collector does not close it
    client.reads = 2  # the head of the response and one frame
    stream = EventStream(frames, stall_s=DEADLINE_S if leaves else 0.02)
    task = asyncio.create_task(stream({"type": "http"}, client.receive, client.send))
    await client.hears("data: x")
    if leaves:
        client.gone.set()
    async with asyncio.timeout(DEADLINE_S):
        await task
    assert source.closed.is_set()
    assert [frame async for frame in frames] == []


async def test_a_source_that_breaks_is_not_hidden() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await finished(EventStream(broken()), Client())


async def test_cancelling_the_response_cleans_up() -> None:
    client, source = Client(), Source(b"data: 1\n\n", ends=False)
    stream = EventStream(source(), ping=lambda: b"ping\n\n")
    task = asyncio.create_task(stream({"type": "http"}, client.receive, client.send))
    await client.hears("data: 1")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.closed.is_set()
    assert len(asyncio.all_tasks()) == 1
