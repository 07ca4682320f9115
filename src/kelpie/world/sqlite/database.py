"""The embedded database: one SQLite file in WAL mode, one thread that writes, a few that read.

While one group commits, the next one gathers in the queue; no caller ever waits for a group to fill. Once `transact`
has returned, the data is on disk (`synchronous=FULL`). Two servers must never open it at once: `data_dir` holds the
lock.
"""

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic_ns, thread_time_ns
from typing import Any, TypeAlias

from sqlalchemy import Connection

from kelpie.core.errors import CommitUnknown, DatabaseDamaged, DatabaseLost, InvariantBroken, Overloaded, StorageError
from kelpie.fairness.processor_time import Usage, current_usage
from kelpie.observe import logs
from kelpie.world.database import T, Tx
from kelpie.world.sqlite.connections import (
    Synchronous,
    copy_database,
    engine_for,
    move_log,
    reader_connection,
    truncate_log,
    writer_connection,
)
from kelpie.world.sqlite.database_files import DatabaseFiles, check_before_open, remedy, without_space
from kelpie.world.sqlite.errors import translate
from kelpie.world.sqlite.group_commit import (
    JOBS_MAX,
    JobFailure,
    JobSuccess,
    Outcome,
    driver_connection,
    in_doubt,
    run_group,
    run_read,
    trouble_after,
)

WAITING_MAX = 10_000  # transactions, and again as many reads
RETRY_AFTER_S = 1.0

# A checkpoint costs more than a commit: it is made when no write came for a moment, after so many transactions (of
# turns, about 1,000 pages), and at last without waiting. SQLite's own way makes one in every commit from 1,000 pages on
# until no reader uses the log when the next one begins: beside searches one turn in five met one instead of one in 14.
# Pieces of long writes change many rows each, and more pages: after so many rows it is time too, because the next write
# waits for the checkpoint.
CHECKPOINT_AFTER, CHECKPOINT_LATEST = 32, 64
CHECKPOINT_AFTER_ROWS, CHECKPOINT_LATEST_ROWS = 500, 1000
IDLE_S = 0.01
WATCH_S = 1.0  # how often the files of an idle database are checked
SPREAD_S = 0.1  # how long a read waits for a thread that has read before, while there are threads that have not

_log = logs.get("storage")


@dataclass(slots=True, eq=False)
class _PendingJob:
    """A function, the future of the caller that waits for its result, and the request that pays for its time."""

    fn: Callable[[Tx], Any]
    future: asyncio.Future[Any]
    usage: Usage | None
    used_ns: int = 0  # set by the thread that ran it


_Queue: TypeAlias = "SimpleQueue[_PendingJob | None]"  # None is the last entry
_Settled: TypeAlias = list[tuple[_PendingJob, Outcome]]


def _ignore_doubt() -> None:
    """Default when no callback is registered for writes in doubt."""


class SqliteDatabase:
    """The `Database` port on one SQLite file. All calls come from one event loop."""

    def __init__(self, path: Path, writer: Connection, readers: list[Connection], waiting_max: int) -> None:
        self._path = path
        self._waiting_max = waiting_max
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writes: _Queue = SimpleQueue()
        self._reads = _ReadQueue(len(readers))
        self._in_doubt: Callable[[], None] = _ignore_doubt
        self._writer = _Writer(writer, DatabaseFiles(path), self._writes, self._settle_writes)
        self._threads = [threading.Thread(target=self._writer.run, name="sqlite-writer", daemon=True)]
        for number, reader in enumerate(readers):
            name = f"sqlite-reader-{number}"
            self._threads.append(threading.Thread(target=self._reads.serve, args=(reader,), name=name, daemon=True))
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
        check_before_open(Path(path))
        engine = engine_for(str(path))
        opened: list[Connection] = []
        try:
            opened.append(writer_connection(engine, synchronous))
            opened.extend(reader_connection(engine) for _ in range(max(readers, 1)))
        except Exception as error:  # raised again; what was opened before it must not stay open
            for connection in opened:
                connection.close()
            failure = translate(error)
            if isinstance(failure, DatabaseDamaged):
                raise DatabaseDamaged(f"The database {path} cannot be opened. {remedy(Path(path))}") from error
            if isinstance(failure, StorageError):
                raise StorageError(f"The database {path} cannot be opened. {failure}") from error
            raise
        return cls(Path(path), opened[0], opened[1:], waiting_max)

    async def transact(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.transact`. Raises Overloaded when too many wait. A cancelled caller only stops waiting."""
        future = self._enqueue(self._writes, fn)
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():  # the answer was on its way when its caller went
                self._in_doubt()
            raise

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.read`. Raises Overloaded when too many wait."""
        future = self._enqueue(self._reads, fn)
        if self._reads.could_spread and self._loop is not None:
            self._loop.call_later(SPREAD_S, self._reads.spread)
        return await future

    def when_in_doubt(self, tell: Callable[[], None]) -> None:
        """See `Database.when_in_doubt`."""
        self._in_doubt = tell

    def trouble(self) -> StorageError | None:
        """See `Database.trouble`. Also the disk, on which a small write may succeed when it is full for all others."""
        return self._writer.trouble or without_space(self._path)

    async def back_up(self, label: str) -> Path:
        """Writes a consistent copy beside the database, `<name>.<label>.backup`, and returns its path.

        A copy of the same label is replaced. Raises StorageError.
        """
        target = self._path.with_name(f"{self._path.name}.{label}.backup")
        try:
            await asyncio.to_thread(copy_database, self._path, target)
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"The copy {target} cannot be made: {error}. Free some space and try again.") from error
        return target

    async def truncate_log(self) -> None:
        """Empties the write-ahead log, so that no older state of a row stays in its file. Raises StorageError."""
        try:
            await asyncio.to_thread(truncate_log, self._path)
        except sqlite3.Error as error:
            raise StorageError(f"The write-ahead log of {self._path} cannot be emptied: {error}") from error

    async def close(self) -> None:
        """Finishes what was accepted and closes the file. Later calls of `transact` and `read` are refused."""
        if not self._closed:
            self._closed = True
            self._writes.put(None)
            self._reads.close()
        await asyncio.to_thread(self._join)

    def _enqueue(self, queue: "_Queue | _ReadQueue", fn: Callable[[Tx], T]) -> asyncio.Future[T]:
        if self._closed:
            raise StorageError("The database is closed.")
        if self._writer.lost is not None:
            raise DatabaseLost(str(self._writer.lost))
        if queue.qsize() >= self._waiting_max:
            raise Overloaded(
                "database_queue_full",
                f"Too many database calls are waiting ({self._waiting_max}). Try again.",
                RETRY_AFTER_S,
            )
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                raise InvariantBroken("A SqliteDatabase serves the one event loop that called it first.")
            self._loop = loop
        future: asyncio.Future[T] = loop.create_future()
        queue.put(_PendingJob(fn, future, current_usage()))
        return future

    def _settle_writes(self, settled: _Settled) -> None:
        doubtful = any(in_doubt(outcome, awaited=not entry.future.done()) for entry, outcome in settled)
        _settle(settled)
        if doubtful:  # still before anyone of them runs
            self._in_doubt()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()


class _Writer:
    """The writer thread: takes the pending jobs, commits them together, and notifies the event loop once per group."""

    def __init__(
        self, connection: Connection, files: DatabaseFiles, queue: _Queue, settle: Callable[[_Settled], None]
    ) -> None:
        self.trouble: StorageError | None = None  # why the last group could not be written
        self.lost: DatabaseLost | None = None  # from then on nothing is written or read
        self._connection = connection
        self._files = files
        self._queue = queue
        self._settle = settle
        self._rescued = self._rescue_failed = False

    def run(self) -> None:
        waiting: list[_PendingJob] = []
        driver = driver_connection(self._connection)
        more, since, changed = True, 0, driver.total_changes
        while more or waiting:
            rows = driver.total_changes - changed
            due = since >= CHECKPOINT_AFTER or rows >= CHECKPOINT_AFTER_ROWS
            more = more and _gather(self._queue, waiting, IDLE_S if due else WATCH_S)
            if due and (not waiting or since >= CHECKPOINT_LATEST or rows >= CHECKPOINT_LATEST_ROWS):
                since, changed = 0, driver.total_changes
                self._move_log()
            if not waiting:
                self._watch()
                continue
            measured = any(entry.usage is not None for entry in waiting)
            started = thread_time_ns() if measured else 0
            outcomes = self._commit(waiting)
            if measured:
                used_ns = (thread_time_ns() - started) // max(1, len(outcomes))
                for entry in waiting[: len(outcomes)]:
                    entry.used_ns = used_ns
            self.trouble = self.lost or trouble_after(outcomes, self.trouble)
            _deliver(list(zip(waiting, outcomes, strict=False)), self._settle)
            del waiting[: len(outcomes)]
            since += len(outcomes)
        self._connection.close()

    def _commit(self, waiting: Sequence[_PendingJob]) -> list[Outcome]:
        if (lost := self._watch()) is not None:
            return [JobFailure(lost)] * len(waiting)
        try:
            outcomes = run_group(self._connection, [entry.fn for entry in waiting], monotonic_ns=monotonic_ns)
        except BaseException as error:  # noqa: BLE001 - the thread must live on; every caller gets the error
            return _bugs(error, len(waiting))
        if (lost := self._watch()) is not None:
            unknown = JobFailure(CommitUnknown(str(lost)))
            return [unknown if isinstance(outcome, JobSuccess) else outcome for outcome in outcomes]
        return outcomes

    def _watch(self) -> DatabaseLost | None:
        """Checks the files. After a loss, saves a copy; where that fails, tries again the next time."""
        if self.lost is None:
            try:
                self._files.check()
            except DatabaseLost as error:
                self.lost = self.trouble = error
                _log.error(
                    "database_lost", "Database file was deleted or replaced; refusing all work", error=str(error)
                )
        if self.lost is not None and not self._rescued:
            self._rescue()
        return self.lost

    def _rescue(self) -> None:
        try:
            saved = self._files.rescue(driver_connection(self._connection))
        except (sqlite3.Error, OSError) as error:
            if not self._rescue_failed:
                self._rescue_failed = True
                _log.error(
                    "database_rescue_failed",
                    "Data of the lost database could not be saved; trying again every second until there is space",
                    error=str(error),
                )
            return
        self._rescued = True
        _log.error("database_rescued", "Saved a copy of the lost database", path=str(saved))

    def _move_log(self) -> None:
        try:
            move_log(self._connection)
        except sqlite3.Error as error:  # nothing is lost, and a disk that is full fails the next commit too
            _log.warning(
                "wal_checkpoint_failed",
                "Write-ahead log could not be checkpointed; trying again later",
                error=str(error),
            )


def _gather(queue: _Queue, waiting: list[_PendingJob], patience_s: float | None) -> bool:
    """Moves the queue into the list, waiting for the first entry, for ever or up to a time-out; False after the last
    entry."""
    try:
        entry = queue.get(not waiting, patience_s)
        while entry is not None:
            waiting.append(entry)
            if len(waiting) >= JOBS_MAX:
                return True
            entry = queue.get_nowait()
    except Empty:
        return True
    return False


class _ReadQueue:
    """Reads that wait, and the threads that wait for them.

    A read goes to the thread that was idle last: its caches are the warmest, and no other thread is woken. A connection
    parses the whole schema with its first read, and keeps it. So a thread that has not read yet gets the first read of
    all, and then only what `spread` gives it.
    """

    def __init__(self, threads: int) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_PendingJob] = deque()
        self._idle: list[_Queue] = []  # of each thread without work, its own queue
        self._fresh: list[_Queue] = []  # the same of threads that have not read yet
        self._threads = self._unread = threads  # how many there are, and how many of them have not read yet
        self._closed = False

    def qsize(self) -> int:
        return len(self._waiting)

    @property
    def could_spread(self) -> bool:
        """True while a read waits and a thread has not read yet."""
        return bool(self._waiting and self._unread)

    def put(self, job: _PendingJob) -> None:
        with self._lock:
            if self._idle:
                inbox = self._idle.pop()
            elif self._fresh and self._unread == self._threads:
                inbox = self._first_use()
            else:
                self._waiting.append(job)
                return
        inbox.put(job)

    def spread(self) -> None:
        """Gives reads that wait to threads that have not read yet."""
        with self._lock:
            most = min(len(self._fresh), len(self._waiting))
            given = [(self._first_use(), self._waiting.popleft()) for _ in range(most)]
        for inbox, job in given:
            inbox.put(job)

    def _first_use(self) -> _Queue:
        self._unread -= 1
        return self._fresh.pop()

    def close(self) -> None:
        """Ends every thread once nothing waits."""
        with self._lock:
            self._closed = True
            free, self._idle, self._fresh = [*self._idle, *self._fresh], [], []
        for inbox in free:
            inbox.put(None)

    def serve(self, connection: Connection) -> None:
        """Runs in a thread of its own until the queue is closed."""
        inbox: _Queue = SimpleQueue()
        job = self._next(inbox, fresh=True)
        while job is not None:
            _read(connection, job)
            job = self._next(inbox)
        connection.close()

    def _next(self, inbox: _Queue, *, fresh: bool = False) -> _PendingJob | None:
        with self._lock:
            if self._waiting and (not fresh or self._unread == self._threads):
                self._unread -= fresh
                return self._waiting.popleft()
            if self._closed:
                return None
            (self._fresh if fresh else self._idle).append(inbox)
        return inbox.get()


def _read(connection: Connection, entry: _PendingJob) -> None:
    """Runs one function on a snapshot."""
    started = 0 if entry.usage is None else thread_time_ns()
    try:
        outcome: Outcome = JobSuccess(run_read(connection, entry.fn))
    except Exception as error:  # noqa: BLE001 - reported to the caller
        outcome = JobFailure(error)
    except BaseException as error:  # noqa: BLE001 - the thread must live on
        outcome = _bugs(error, 1)[0]
    if entry.usage is not None:
        entry.used_ns = thread_time_ns() - started
    _deliver([(entry, outcome)], _settle)


def _bugs(error: BaseException, count: int) -> list[Outcome]:
    return [JobFailure(InvariantBroken(f"A transaction function raised {type(error).__name__}: {error}"))] * count


def _deliver(settled: _Settled, settle: Callable[[_Settled], None]) -> None:
    loop = settled[0][0].future.get_loop()
    try:
        loop.call_soon_threadsafe(settle, settled)
    except RuntimeError:
        if not loop.is_closed():  # with the loop, everyone who could have waited is gone
            raise


def _settle(settled: _Settled) -> None:
    for entry, outcome in settled:
        if entry.usage is not None:
            entry.usage.add(entry.used_ns)
        if entry.future.done():  # its caller was cancelled; the work stays
            continue
        if isinstance(outcome, JobSuccess):
            entry.future.set_result(outcome.value)
        else:
            entry.future.set_exception(outcome.error)
