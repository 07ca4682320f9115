"""Uploads: large request bodies, streamed to a file under a limit and removed when the request is done.

An upload is never a whole in the server's memory. A worker process or a later reader takes it from the file. One that
is kept survives its request and the server, until somebody discards it.
"""

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, TypeVarTuple

from kelpie.core.errors import DiskFull, InvariantBroken, StorageError

DIRECTORY = "uploads"
KEPT = "kept-uploads"
PIECE_BYTES = 1024 * 1024  # written to the file at a time, by a thread

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Upload:
    """A received upload: a file of this machine, or, in the simulation, bytes. A worker gets `head` before it."""

    size: int
    path: Path | None = None
    content: bytes = b""
    head: bytes = b""


class Uploads(Protocol):
    def receive(self, pieces: AsyncIterable[bytes]) -> AbstractAsyncContextManager[Upload]:
        """The upload, until the context ends. Raises what `pieces` raises, and StorageError."""
        ...

    async def keep(self, upload: Upload, name: str) -> None:
        """Keeps an upload on the disk under a name without '/', also after a crash. Raises StorageError."""
        ...

    async def kept(self, name: str) -> Upload | None:
        """The upload that was kept under a name, if it is there. Raises StorageError."""
        ...

    async def discard(self, name: str) -> None:
        """Removes a kept upload, if it is there. Raises StorageError."""
        ...

    async def names(self) -> list[str]:
        """The names of all kept uploads, sorted. Raises StorageError."""
        ...


class DirectoryUploads:
    """Uploads in a directory of their own, or in the one for temporary files. No other user can read them."""

    def __init__(self, data_dir: Path | None = None) -> None:
        self._directory = None if data_dir is None else data_dir / DIRECTORY
        self._kept = None if data_dir is None else data_dir / KEPT

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

    async def keep(self, upload: Upload, name: str) -> None:
        assert upload.path is not None
        await _in_thread(_keep, upload.path, self._place(name))

    async def kept(self, name: str) -> Upload | None:
        place = self._place(name)
        size = await _in_thread(_size, place)
        return None if size is None else Upload(size, place)

    async def discard(self, name: str) -> None:
        await _in_thread(_remove, self._place(name))

    async def names(self) -> list[str]:
        return await _in_thread(_names, self._kept)

    def _place(self, name: str) -> Path:
        if self._kept is None:
            self._kept = Path(tempfile.mkdtemp(prefix="kelpie-"))
        if Path(name).name != name:
            raise InvariantBroken(f"'{name[:80]}' cannot be the name of a kept upload.")
        return self._kept / name

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


_T = TypeVar("_T")
_A = TypeVarTuple("_A")


async def _in_thread(work: Callable[[*_A], _T], *given: *_A) -> _T:
    try:
        return await asyncio.to_thread(work, *given)
    except OSError as error:
        raise _stored(error) from error


def _keep(path: Path, place: Path) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.replace(place)
    directory = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _size(place: Path) -> int | None:
    try:
        return place.stat().st_size
    except FileNotFoundError:
        return None


def _remove(place: Path) -> None:
    place.unlink(missing_ok=True)


def _names(directory: Path | None) -> list[str]:
    if directory is None or not directory.is_dir():
        return []
    return sorted(each.name for each in directory.iterdir())


def _stored(error: OSError) -> StorageError:
    if error.errno in _FULL:
        return DiskFull("The upload cannot be stored: the disk is full.")
    return StorageError(f"The upload cannot be stored: {error.strerror}.")
