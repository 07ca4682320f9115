"""The embedded database: one SQLite file in WAL mode, one thread that writes, a few that read.

While one group commits, the next one gathers in the queue; nobody ever waits for a group to fill. What `transact`
returned is on disk (`synchronous=FULL`). It must never be opened by two servers at once: `data_dir` holds the lock.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeAlias

import orjson
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from kelpie.core.errors import ConfigurationError, InvariantBroken, Overloaded, StorageError
from kelpie.world.commit_group import JOBS_MAX, Done, Failed, Outcome, driver_connection, run_group, run_read
from kelpie.world.database import T, Tx
from kelpie.world.sqlite_errors import translate

BUSY_TIMEOUT_MS = 5000
WAITING_MAX = 10_000  # transactions, and again as many reads
LOG_BYTES_MAX = 64 * 1024 * 1024  # what a checkpoint leaves of the write-ahead log
RETRY_AFTER_S = 1.0

Synchronous: TypeAlias = Literal["FULL", "NORMAL", "OFF"]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A function, and the future of whoever waits for what it gives."""

    fn: Callable[[Tx], Any]
    future: asyncio.Future[Any]


_Queue: TypeAlias = "SimpleQueue[_Waiting | None]"  # None is the last entry


class SqliteDatabase:
    """The `Database` port on one SQLite file. All calls come from one event loop."""

    def __init__(self, path: Path, writer: Connection, readers: list[Connection], waiting_max: int) -> None:
        self._path = path
        self._waiting_max = waiting_max
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writes: _Queue = SimpleQueue()
        self._reads: _Queue = SimpleQueue()
        self._threads = [
            threading.Thread(target=_write, args=(writer, self._writes), name="sqlite-writer", daemon=True)
        ]
        for number, reader in enumerate(readers):
            name = f"sqlite-reader-{number}"
            self._threads.append(threading.Thread(target=_read, args=(reader, self._reads), name=name, daemon=True))
        for thread in self._threads:
            thread.start()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        readers: int = 4,
        synchronous: Synchronous = "FULL",
        waiting_max: int = WAITING_MAX,
    ) -> "SqliteDatabase":
        """Opens or creates the file. Raises ConfigurationError or StorageError when it cannot be used."""
        engine = _engine(str(path))
        opened: list[Connection] = []
        try:
            opened.append(_writer_connection(engine, synchronous))
            opened.extend(_reader_connection(engine) for _ in range(max(readers, 1)))
        except Exception as error:
            for connection in opened:
                connection.close()
            failure = translate(error)
            if isinstance(failure, StorageError):
                raise StorageError(f"The database {path} cannot be opened. {failure}") from error
            raise
        return cls(Path(path), opened[0], opened[1:], waiting_max)

    async def transact(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.transact`. Raises Overloaded when too many wait. A cancelled caller only stops waiting."""
        return await self._enqueue(self._writes, fn)

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.read`. Raises Overloaded when too many wait."""
        return await self._enqueue(self._reads, fn)

    async def back_up(self, label: str) -> Path:
        """Writes a consistent copy beside the database, `<name>.<label>.backup`, and returns where it is.

        A copy of the same label is replaced. Raises StorageError.
        """
        target = self._path.with_name(f"{self._path.name}.{label}.backup")
        try:
            await asyncio.to_thread(copy_database, self._path, target)
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"The copy {target} cannot be made: {error}. Make room for it and try again.") from error
        return target

    async def close(self) -> None:
        """Finishes what was accepted and lets go of the file. Later calls of `transact` and `read` are refused."""
        if not self._closed:
            self._closed = True
            self._writes.put(None)
            for _ in self._threads[1:]:
                self._reads.put(None)
        await asyncio.to_thread(self._join)

    async def _enqueue(self, queue: _Queue, fn: Callable[[Tx], T]) -> T:
        if self._closed:
            raise StorageError("The database is closed.")
        if queue.qsize() >= self._waiting_max:
            raise Overloaded(f"The database has {self._waiting_max} calls waiting. Try again.", RETRY_AFTER_S)
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                raise InvariantBroken("A SqliteDatabase serves the one event loop that called it first.")
            self._loop = loop
        future: asyncio.Future[T] = loop.create_future()
        queue.put(_Waiting(fn, future))
        return await future

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()


def memory_connection() -> Connection:
    """A connection to a new database in memory, set up as the writer's is; for the simulator and for unit tests."""
    return _writer_connection(_engine(":memory:"), "OFF")


def copy_database(source: Path, target: Path) -> None:
    """Copies a database that may be in use, by SQLite's backup API. The target appears whole or not at all."""
    unfinished = target.with_name(target.name + ".part")
    unfinished.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(source)) as origin, closing(sqlite3.connect(unfinished)) as copy:
            origin.backup(copy)
            # A copy in WAL mode would need its log beside it to be whole.
            copy.execute("PRAGMA journal_mode=DELETE")
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _engine(path: str) -> Engine:
    """isolation_level=None: the driver begins nothing by itself, the commit group does."""

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)

    return create_engine(
        "sqlite://", creator=connect, poolclass=NullPool, json_serializer=_dumps, json_deserializer=orjson.loads
    )


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


def _writer_connection(engine: Engine, synchronous: Synchronous) -> Connection:
    connection = engine.connect()
    raw = driver_connection(connection)
    raw.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    mode = raw.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode not in ("wal", "memory"):
        raw.close()
        raise ConfigurationError("KELPIE_DATA_DIR", "its file system has no shared memory for SQLite; use a local disk")
    raw.execute(f"PRAGMA synchronous={synchronous}")
    raw.execute(f"PRAGMA journal_size_limit={LOG_BYTES_MAX}")
    raw.execute("PRAGMA foreign_keys=ON")
    return connection


def _reader_connection(engine: Engine) -> Connection:
    connection = engine.connect()
    raw = driver_connection(connection)
    raw.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    raw.execute("PRAGMA query_only=ON")
    return connection


def _write(connection: Connection, queue: _Queue) -> None:
    """The writer thread: takes what waits, commits it together, and tells the event loop once per group."""
    waiting: list[_Waiting] = []
    more = True
    while more or waiting:
        more = more and _gather(queue, waiting)
        if not waiting:
            continue
        try:
            outcomes = run_group(connection, [entry.fn for entry in waiting], monotonic_ns=time.monotonic_ns)
        except BaseException as error:  # noqa: BLE001 - the thread must live on; everyone who waits is told
            outcomes = _bugs(error, len(waiting))
        _deliver(list(zip(waiting, outcomes, strict=False)))
        del waiting[: len(outcomes)]
    connection.close()


def _gather(queue: _Queue, waiting: list[_Waiting]) -> bool:
    """Moves what is in the queue into the list, waiting for the first; False when the last entry was seen."""
    try:
        entry = queue.get(block=not waiting)
        while entry is not None:
            waiting.append(entry)
            if len(waiting) >= JOBS_MAX:
                return True
            entry = queue.get_nowait()
    except Empty:
        return True
    return False


def _read(connection: Connection, queue: _Queue) -> None:
    """A reader thread: one snapshot per function."""
    while entry := queue.get():
        try:
            outcome: Outcome = Done(run_read(connection, entry.fn))
        except Exception as error:  # noqa: BLE001 - reported to whoever waits
            outcome = Failed(error)
        except BaseException as error:  # noqa: BLE001 - the thread must live on
            outcome = _bugs(error, 1)[0]
        _deliver([(entry, outcome)])
    connection.close()


def _bugs(error: BaseException, count: int) -> list[Outcome]:
    return [Failed(InvariantBroken(f"A transaction function raised {type(error).__name__}: {error}"))] * count


def _deliver(settled: list[tuple[_Waiting, Outcome]]) -> None:
    loop = settled[0][0].future.get_loop()
    try:
        loop.call_soon_threadsafe(_settle, settled)
    except RuntimeError:
        if not loop.is_closed():  # with the loop, everyone who could have waited is gone
            raise


def _settle(settled: list[tuple[_Waiting, Outcome]]) -> None:
    for entry, outcome in settled:
        if entry.future.done():  # its caller was cancelled; the work stays
            continue
        if isinstance(outcome, Done):
            entry.future.set_result(outcome.value)
        else:
            entry.future.set_exception(outcome.error)
