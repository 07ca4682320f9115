"""The transport as answers are written to it: the head of an answer waits for the first part of its body.

uvicorn writes the two apart, and each write is a system call that wakes the client. A head without a body, as that of a
stream whose first event takes a while, goes out in the next iteration of the event loop.
"""

import asyncio

_HEAD = b"HTTP/"


class AnswerTransport:
    """What uvicorn's cycle of request and response uses of a transport."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None
        self._due: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Writes after everything that was given before."""
        if self._head is not None:
            head, self._head = self._head, None
            assert self._due is not None
            self._due.cancel()
            self._transport.writelines((head, data))
        elif data.startswith(_HEAD):
            self._head = data
            self._due = self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        """Closes the connection after what was given is written."""
        if self._head is not None:
            assert self._due is not None
            self._due.cancel()
            self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, None
        if head is not None and not self._transport.is_closing():
            self._transport.write(head)
