"""A socket to a program in a cell that stays and talks: bytes in both directions, with a bound on what waits here."""

import asyncio
import socket

from kelpie.world.cells.pipes import CHUNK
from kelpie.world.cells.port import ChannelClosed

WAITING_BYTES_MAX = 1024 * 1024  # that were read and not taken; the program must wait then


class SocketChannel:
    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._socket = connection
        self._received = bytearray()
        self._arrived = asyncio.Event()
        self._sending = asyncio.Lock()
        self._writable: asyncio.Future[None] | None = None
        self._ended = False
        self._closed = False
        loop.add_reader(connection, self._read)

    async def send(self, data: bytes) -> None:
        """Sends all of it. Raises ChannelClosed."""
        async with self._sending:
            left = memoryview(data)
            while left:
                if self._closed:
                    raise ChannelClosed
                try:
                    left = left[self._socket.send(left) :]
                except BlockingIOError:
                    await self._until_writable()
                except OSError:
                    raise ChannelClosed from None

    async def receive(self) -> bytes:
        """What has arrived, as soon as there is something; nothing when the program has ended. One caller at a time."""
        while not self._received:
            if self._ended:
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        data = bytes(self._received)
        self._received.clear()
        if not self._ended and not self._closed:
            self._loop.add_reader(self._socket, self._read)
        return data

    def close(self) -> None:
        """Wakes everybody who waits. The owner closes the socket itself."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._end()

    async def _until_writable(self) -> None:
        self._writable = writable = self._loop.create_future()
        self._loop.add_writer(self._socket, _settle, writable)
        try:
            await writable
        finally:
            self._loop.remove_writer(self._socket)
            self._writable = None

    def _read(self) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += data
        if not data:
            self._loop.remove_reader(self._socket)
            self._end()
        elif len(self._received) >= WAITING_BYTES_MAX:
            self._loop.remove_reader(self._socket)
        self._arrived.set()

    def _end(self) -> None:
        self._ended = True
        self._arrived.set()


def _settle(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
