"""Server-sent events: Kelpie's own ASGI response, without a task per frame.

A client that disconnects or stops reading ends its own response and nothing else: the source of the frames is only ever
iterated, and the turn never waits for it. Frames are never named except errors, because the SDKs ignore others.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import orjson
from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kelpie.actors.interruption import Interruption

PING_S = 20.0
STALL_S = 60.0  # how long a client may leave a frame unread
DONE = b"data: [DONE]\n\n"

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def frame(data: Mapping[str, Any], event_id: str = "") -> bytes:
    """One unnamed event; a client that reconnects can name the id of the last one it got."""
    return (b"id: %b\n" % event_id.encode() if event_id else b"") + b"data: " + orjson.dumps(data) + b"\n\n"


def error(data: Mapping[str, Any]) -> bytes:
    """The one named event; the SDKs raise when they see it."""
    return b"event: error\ndata: " + orjson.dumps(data) + b"\n\n"


class EventStream(Response):
    """Sends frames as they come; with `ping`, one at once if it `greets`, and one per `ping_s` of silence."""

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        *,
        ping: Callable[[], bytes] | None = None,
        ping_s: float = PING_S,
        stall_s: float = STALL_S,
        greets: bool = True,
    ) -> None:
        self.status_code = 200
        self.background: BackgroundTask | None = None
        self.init_headers(_HEADERS)
        self._frames = frames
        self._ping = ping
        self._ping_s = ping_s
        self._stall_s = stall_s
        self._greets = greets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop, line, stream = asyncio.get_running_loop(), _ClientConnection(send), Interruption()
        watchers = [loop.create_task(_until_gone(receive))]
        watchers[0].add_done_callback(stream.interrupt)

        def watch() -> None:  # few streams are ever so quiet: no other pays for a task
            watchers.append(loop.create_task(self._watch(line)))
            watchers[-1].add_done_callback(stream.interrupt)

        later = loop.call_later(self._stall_s if self._ping is None else self._ping_s, watch)
        try:
            with stream:
                await self._pump(line)
        finally:
            later.cancel()
            for task in watchers:
                task.cancel()
            await asyncio.wait(watchers)

    async def _pump(self, line: "_ClientConnection") -> None:
        try:
            await line.put({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if self._ping and self._greets:
                await line.send(self._ping())
            async for data in self._frames:
                await line.send(data)
            await line.put({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            close = getattr(self._frames, "aclose", None)
            if close:
                await close()

    async def _watch(self, line: "_ClientConnection") -> None:
        """Keeps a quiet connection alive; returns when the client leaves a frame unread for too long."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            if line.sending_since is not None:
                left_s = line.sending_since + self._stall_s - now
                if left_s <= 0:
                    return
            elif self._ping is None:
                left_s = self._stall_s
            else:
                left_s = line.quiet_since + self._ping_s - now
            if left_s > 0:
                await asyncio.sleep(left_s)
            elif self._ping:
                try:
                    async with asyncio.timeout(self._stall_s):
                        await line.send(self._ping())
                except TimeoutError:
                    return


class _ClientConnection:
    """The connection to one client, one message at a time; knows since when it is quiet or stuck."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self.quiet_since = self._loop.time()
        self.sending_since: float | None = None

    async def send(self, data: bytes) -> None:
        await self.put({"type": "http.response.body", "body": data, "more_body": True})

    async def put(self, message: dict[str, Any]) -> None:
        async with self._turn:
            self.sending_since = self._loop.time()
            try:
                await self._send(message)
            finally:
                self.sending_since = None
                self.quiet_since = self._loop.time()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
