"""Output of a cell: two pipes of text and one framed result, each bounded."""

import asyncio
import os
import struct
from collections.abc import Callable

from kelpie.core.tools.confinement import MEGABYTE
from kelpie.world.cells.port import FLOOD_FACTOR, RESULT_BYTES_MAX

FRAME = struct.Struct("!I")
CHUNK = 65536


def framed(data: bytes) -> bytes:
    """The data after its length."""
    return FRAME.pack(len(data)) + data


class Pipe:
    """Reads a pipe to its end, keeps up to a limit, and calls back when far more arrives."""

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, flood: Callable[[], None]) -> None:
        self.data = bytearray()
        self.truncated = False
        self.bytes_max = MEGABYTE
        self.keeps_end = False  # keep the end of the output instead of its beginning; then no amount is too much
        self._loop = loop
        self._descriptor: int | None = descriptor
        self._flood = flood
        self._seen = 0
        os.set_blocking(descriptor, False)
        loop.add_reader(descriptor, self._read)

    def drain(self) -> None:
        """Reads what is available right now."""
        while self._read():
            pass

    def close(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> bool:
        """Reads a piece; True if there may be more."""
        if self._descriptor is None:
            return False
        try:
            chunk = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.close()
            return False
        if self.keeps_end:
            self.data += chunk
            del self.data[: -self.bytes_max]
            return True
        self._seen += len(chunk)
        room = max(0, self.bytes_max - len(self.data))
        self.data += chunk[:room]
        self.truncated = self.truncated or len(chunk) > room
        if self._seen <= self.bytes_max * FLOOD_FACTOR:
            return True
        self.close()
        self._flood()
        return False


class Frame:
    """One frame, assembled from pieces."""

    def __init__(self, flood: Callable[[], None]) -> None:
        self._data = bytearray()
        self._flood = flood

    def add(self, piece: bytes) -> None:
        self._data += piece
        if len(self._data) >= FRAME.size and self._length() > RESULT_BYTES_MAX:
            self._data.clear()
            self._flood()

    def complete(self) -> bytes | None:
        """The result once all of it has arrived; anything after it is ignored."""
        if len(self._data) < FRAME.size or len(self._data) - FRAME.size < self._length():
            return None
        return bytes(self._data[FRAME.size : FRAME.size + self._length()])

    def _length(self) -> int:
        length: int = FRAME.unpack_from(self._data)[0]
        return length
