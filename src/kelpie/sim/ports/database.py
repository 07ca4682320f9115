"""The `Database` port in the simulation: the production's group commit on a Disk, called inline at simulated moments.

A transaction waits until the flush that takes it, the group is run and committed there and then, and its callers get
the result a moment later. A power cut before the commit loses the group; one between the commit and the results keeps
it, while no caller knows. All timers belong to the node, so its death ends them.
"""

import asyncio
import sqlite3  # noqa: TID251 - for its errors, which injected faults must be
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kelpie.core.errors import Overloaded, StorageError
from kelpie.sim.faults import Fault, Faults
from kelpie.sim.loop.errors import PowerCut, SimError
from kelpie.sim.loop.loop import SimLoop, running
from kelpie.sim.loop.node import Node
from kelpie.sim.ports.disk import Disk, ProcessState
from kelpie.world.database import T, Tx
from kelpie.world.sqlite.group_commit import (
    JOBS_MAX,
    JobFailure,
    JobSuccess,
    Outcome,
    Point,
    driver_connection,
    in_doubt,
    run_group,
    run_read,
    trouble_after,
)

WAITING_MAX = 10_000
COMMIT_S = (0.0002, 0.003)  # how long the flush and the telling take, drawn evenly
READ_S = (0.00005, 0.001)


@dataclass(frozen=True, slots=True)
class _Waiting:
    fn: Callable[[Tx], Any]
    future: asyncio.Future[Any]


class SimDatabase:
    """One node's connection to a disk."""

    def __init__(self, disk: Disk, faults: Faults, node: Node, *, waiting_max: int = WAITING_MAX) -> None:
        self._loop = running()
        self.disk = self._disk = disk
        self.faults = self._faults = faults
        self.node = self._node = node
        self._points = _Points(disk, faults, self._loop)
        self._rng = self._loop.rng(f"database/{node}")
        self._queue: list[_Waiting] = []
        self._flushing = False
        self._pending = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._waiting_max = waiting_max
        self._in_doubt: Callable[[], None] = lambda: None
        self._process = ProcessState()
        self._answered_at = 0.0
        self._trouble: StorageError | None = None

    async def transact(self, fn: Callable[[Tx], T]) -> T:
        future = self._accept()
        self._queue.append(_Waiting(fn, future))
        self._flush_later()
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():
                self._in_doubt()
            raise

    def when_in_doubt(self, tell: Callable[[], None]) -> None:
        self._in_doubt = tell

    def trouble(self) -> StorageError | None:
        return self._trouble

    @property
    def is_idle(self) -> bool:
        """True if every call was answered."""
        return not self._pending

    async def read(self, fn: Callable[[Tx], T]) -> T:
        future = self._accept()
        delay_s = self._rng.uniform(*READ_S) + self._late("database.read")
        self._loop.call_later(delay_s, self._read, _Waiting(fn, future))
        return await future

    async def close(self) -> None:
        self._closed = True
        await self._idle.wait()

    def _accept(self) -> asyncio.Future[Any]:
        if self._closed:
            raise StorageError("The database is closed.")
        if self._pending >= self._waiting_max:
            raise Overloaded(
                "database_queue_full", f"The database has {self._waiting_max} calls waiting. Try again.", 1.0
            )
        self._pending += 1
        self._idle.clear()
        return self._loop.create_future()

    def _late(self, place: str) -> float:
        return self._faults.size(Fault.storage_latency) if self._faults.fires(Fault.storage_latency, place) else 0.0

    def _flush_later(self) -> None:
        if not self._flushing and self._queue:
            self._flushing = True
            self._loop.call_later(self._rng.uniform(*COMMIT_S) + self._late("database.write"), self._flush)

    def _flush(self) -> None:
        group = self._queue[:JOBS_MAX]
        try:
            with self._disk.used_by(self._process, self._points) as connection:
                outcomes = run_group(connection, [entry.fn for entry in group], faults=self._points)
            self._points.check_power()
        except PowerCut:
            self._cut()
            return
        self._trouble = trouble_after(outcomes, self._trouble)
        del self._queue[: len(outcomes)]
        self._loop.note(f"commit {self._node} {len(outcomes)}")
        settled = list(zip(group, outcomes, strict=False))
        answered_at = self._loop.time() + self._rng.uniform(*COMMIT_S) + self._late("database.acknowledge")
        self._answered_at = max(self._answered_at, answered_at)  # the answers come in the order of the commits
        self._loop.call_at(self._answered_at, self._settle_writes, settled)
        self._flushing = False
        self._flush_later()

    def _read(self, entry: _Waiting) -> None:
        fn = self._disk.refusing_writes(entry.fn)
        try:
            with self._disk.used_by(self._process) as connection:
                outcome: Outcome = JobSuccess(run_read(connection, fn, faults=self._points))
        except PowerCut:
            self._cut()
            return
        except Exception as error:  # noqa: BLE001 - reported to the waiting caller
            outcome = JobFailure(error)
        self._settle([(entry, outcome)])

    def _cut(self) -> None:
        self._loop.note(f"power cut {self._node}")
        self._node.crash()

    def _settle_writes(self, settled: list[tuple[_Waiting, Outcome]]) -> None:
        doubtful = any(in_doubt(outcome, awaited=not entry.future.done()) for entry, outcome in settled)
        self._settle(settled)
        if doubtful:
            self._in_doubt()

    def _settle(self, settled: list[tuple[_Waiting, Outcome]]) -> None:
        for entry, outcome in settled:
            self._pending -= 1
            if entry.future.done():
                continue
            if isinstance(outcome, JobSuccess):
                entry.future.set_result(outcome.value)
            else:
                entry.future.set_exception(outcome.error)
        if not self._pending:
            self._idle.set()


class _Points:
    """Places where the commit group can be made to fail."""

    def __init__(self, disk: Disk, faults: Faults, loop: SimLoop) -> None:
        self._disk = disk
        self._faults = faults
        self._loop = loop
        self._cut = False

    def check_power(self) -> None:
        """Raises PowerCut when the power failed in the middle of a statement."""
        if self._cut:
            raise PowerCut

    def before(self, point: Point) -> None:
        if point is not Point.statement:
            self.check_power()
        match point:
            case Point.begin:
                self._crash(Fault.crash_before_write, "database.begin")
                self._fail(Fault.storage_write_fail, "database.begin")
                self._refuse("database.begin")
            case Point.statement:
                self._crash_in_statement()
                self._fail(Fault.storage_write_fail, "database.statement")
                self._fill("database.statement")
            case Point.commit:
                self._crash(Fault.crash_during_transaction, "database.commit")
                self._fail(Fault.storage_write_fail, "database.commit")
                self._refuse("database.commit")
                self._fill("database.commit")
            case Point.read:
                self._fail(Fault.storage_read_fail, "database.read")
            case _:
                pass

    def after(self, point: Point) -> None:
        if point is not Point.commit:
            return
        try:
            self._disk.committed()
        except SimError as broken:
            self._loop.fail(broken)
        self._crash(Fault.crash_after_write, "database.acknowledge")
        self._fail(Fault.storage_write_fail, "database.acknowledge")

    def _crash(self, fault: Fault, place: str) -> None:
        if self._faults.fires(fault, place):
            raise PowerCut

    def _crash_in_statement(self) -> None:
        """SQLAlchemy answers a BaseException by closing the connection, which is the disk; so it is raised later."""
        self._cut = self._cut or self._faults.fires(Fault.crash_during_transaction, "database.statement")
        if self._cut:
            raise sqlite_error("the power failed", sqlite3.SQLITE_IOERR)

    def _fail(self, fault: Fault, place: str) -> None:
        if self._faults.fires(fault, place):
            raise sqlite_error("disk I/O error", sqlite3.SQLITE_IOERR)

    def _refuse(self, place: str) -> None:
        if self._faults.fires(Fault.storage_busy, place):
            raise sqlite_error("database is locked", sqlite3.SQLITE_BUSY)

    def _fill(self, place: str) -> None:
        if self._faults.fires(Fault.disk_full, place):
            driver_connection(self._disk.connection).rollback()  # as SQLite itself does
            raise sqlite_error("database or disk is full", sqlite3.SQLITE_FULL)


def sqlite_error(text: str, code: int) -> sqlite3.OperationalError:
    """An error as sqlite3 itself raises it."""
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error
