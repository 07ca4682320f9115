"""Requests that wait for their answers on a connection that carries many: each gets its own, or the reason for none."""

import asyncio

from kelpie.core.errors import McpError
from kelpie.mcp.protocol.messages import Failure, RequestId, Result
from kelpie.mcp.transports.port import timed_out

PENDING_MAX = 1000


class PendingRequests:
    def __init__(self) -> None:
        self._waiting: dict[RequestId, asyncio.Future[Result | Failure]] = {}
        self._signs: dict[RequestId, asyncio.Event] = {}
        self._over: McpError | None = None

    @property
    def ids(self) -> tuple[RequestId, ...]:
        return tuple(self._waiting)

    def add(self, request_id: RequestId) -> None:
        """Must come before the request is sent. Raises McpError when the connection is over."""
        if self._over is not None:
            raise self._over
        assert len(self._waiting) < PENDING_MAX, "the connection pool bounds the calls of a server"
        self._waiting[request_id] = asyncio.get_running_loop().create_future()
        self._signs[request_id] = asyncio.Event()

    async def answer(self, request_id: RequestId, read_s: float | None) -> Result | Failure:
        """The answer to an added request. Raises McpError after a silence of `read_s`, or when the connection ends."""
        waiting, sign = self._waiting[request_id], self._signs[request_id]
        while True:
            sign.clear()
            watching = asyncio.ensure_future(sign.wait())
            try:
                done, _ = await asyncio.wait((waiting, watching), timeout=read_s, return_when="FIRST_COMPLETED")
            finally:
                watching.cancel()
            if waiting in done:
                return waiting.result()
            if not done:
                raise timed_out("it did not answer", read_s or 0)

    def remove(self, request_id: RequestId) -> None:
        self._signs.pop(request_id, None)
        if (waiting := self._waiting.pop(request_id, None)) is not None:
            waiting.cancel()

    def resolve(self, message: Result | Failure) -> bool:
        """Gives an answer to who waits for it; False if nobody does."""
        if message.id is None:
            return False
        waiting = self._waiting.get(message.id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(message)
        return True

    def sign_of_life(self) -> None:
        """The server has sent something: nobody's patience has begun before this."""
        for sign in self._signs.values():
            sign.set()

    def end(self, error: McpError) -> None:
        """Nothing more will come."""
        self._over = self._over or error
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # whoever waits gets it; there may be nobody
