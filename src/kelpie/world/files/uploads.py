"""Uploads: large request bodies, streamed to a file under a limit and removed when the request is done.

An upload is never a whole in the server's memory. A worker process or a later reader takes it from the file.
"""

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kelpie.core.errors import DiskFull, StorageError

DIRECTORY = "uploads"
PIECE_BYTES = 1024 * 1024  # written to the file at a time, by a thread

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Upload:
    """A received upload: a file of this machine, or, in the simulation, bytes."""

    size: int
    path: Path | None = None
    content: bytes = b""


class Uploads(Protocol):
    def receive(self, pieces: AsyncIterable[bytes]) -> AbstractAsyncContextManager[Upload]:
        """The upload, until the context ends. Raises what `pieces` raises, and StorageError."""
        ...


class DirectoryUploads:
    """Uploads in a directory of their own, or in the one for temporary files. No other user can read them."""

    def __init__(self, data_dir: Path | None = None) -> None:
        self._directory = None if data_dir is None else data_dir / DIRECTORY

    def clear(self) -> None:
        """Removes what an earlier process left behind. Call it before the server accepts requests."""
        if self._directory is not None and self._directory.is_dir():
            for left in self._directory.iterdir():
                left.unlink()

    @asynccontextmanager
    async def receive(self, pieces: AsyncIterable[bytes]) -> AsyncGenerator[Upload, None]:
        file, path = self._open()
        try:
            try:
                size = await _write(file, pieces)
            finally:
                os.close(file)
            yield Upload(size, path)
        finally:
            path.unlink(missing_ok=True)

    def _open(self) -> tuple[int, Path]:
        try:
            if self._directory is not None:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file, path = tempfile.mkstemp(prefix="upload-", dir=self._directory)
        except OSError as error:
            raise _stored(error) from error
        return file, Path(path)


async def _write(file: int, pieces: AsyncIterable[bytes]) -> int:
    size = 0
    waiting = bytearray()
    async for piece in pieces:
        waiting += piece
        if len(waiting) >= PIECE_BYTES:
            size += await _flush(file, waiting)
            waiting = bytearray()
    return size + await _flush(file, waiting)


async def _flush(file: int, data: bytearray) -> int:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[await asyncio.to_thread(os.write, file, rest) :]
    except OSError as error:
        raise _stored(error) from error
    return len(data)


def _stored(error: OSError) -> StorageError:
    if error.errno in _FULL:
        return DiskFull("The upload cannot be stored: the disk is full.")
    return StorageError(f"The upload cannot be stored: {error.strerror}.")
