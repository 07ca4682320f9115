"""Group commit on SQLite: the waiting transaction functions are run in one transaction, so that they share one fsync.

Nothing is acknowledged before the outer COMMIT returned. A function that fails rolls back only its own work: the group
is run again with a savepoint before each function. Without a failure there are none, because SQLite copies every page
that changes after a savepoint. A failure that ends the whole transaction loses the group, which is then replayed one by
one, each function in a transaction of its own. This is plain synchronous code without threads or clocks, so the real
adapter and the simulator run the very same lines. It must never run a function outside a transaction.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, cast

from sqlalchemy import Connection, event
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import CommitUnknown, InvariantBroken, StorageError, StorageUnavailable
from kelpie.world.database import RUN_SQL, T, Tx
from kelpie.world.sqlite.errors import ENDS_TRANSACTION, commit_failure, is_undecodable, result_code, translate

JOBS_MAX = 256
GROUP_MS_MAX = 20

Job: TypeAlias = Callable[[Tx], Any]


class Point(StrEnum):
    """A step around which the simulator can inject a fault."""

    begin = "begin"
    savepoint = "savepoint"
    job = "job"
    statement = "statement"  # needs `watch_statements`
    release = "release"
    commit = "commit"
    read = "read"


class FaultPoints(Protocol):
    """Hooks of the simulator. Raising an Exception makes the step fail; a BaseException is a power cut.

    `after(Point.commit)` raising means that the commit happened and its answer was lost: CommitUnknown is reported. To
    end the transaction as SQLite does when the disk is full, roll the connection back before raising.
    """

    def before(self, point: Point) -> None: ...

    def after(self, point: Point) -> None: ...


@dataclass(frozen=True, slots=True)
class JobSuccess:
    value: Any


@dataclass(frozen=True, slots=True)
class JobFailure:
    error: Exception


Outcome: TypeAlias = JobSuccess | JobFailure


def in_doubt(outcome: Outcome, *, awaited: bool) -> bool:
    """Checks whether a write may be stored without its caller knowing: the outcome is unknown, or the caller is
    gone."""
    if isinstance(outcome, JobSuccess):
        return not awaited
    return isinstance(outcome.error, CommitUnknown | InvariantBroken)  # a bug may have struck at any point


def trouble_after(outcomes: Sequence[Outcome], before: StorageError | None) -> StorageError | None:
    """Why the database cannot be written to, after a group; an error that a function raised itself says nothing."""
    for outcome in outcomes:
        if isinstance(outcome, JobSuccess):
            return None
        error = outcome.error
        if isinstance(error, StorageUnavailable | CommitUnknown) or type(error) is StorageError:
            before = error
    return before


def run_group(
    connection: Connection,
    jobs: Sequence[Job],
    *,
    faults: FaultPoints | None = None,
    monotonic_ns: Callable[[], int] | None = None,
    ms_max: int = GROUP_MS_MAX,
) -> list[Outcome]:
    """Runs the first of the jobs in one transaction and returns an outcome for each that was run, in order.

    At least one is run, at most JOBS_MAX, and with a clock no new one is begun after `ms_max`; the caller offers the
    rest again. Raises only what is no Exception (a power cut); the open transaction is rolled back then.
    """
    group = _Group(connection, faults)
    deadline_ns = monotonic_ns() + ms_max * 1_000_000 if monotonic_ns else 0
    try:
        return group.run(jobs[:JOBS_MAX], lambda: monotonic_ns is not None and monotonic_ns() > deadline_ns)
    except BaseException:  # raised again; the next group must not find this transaction open
        group.roll_back()
        raise


def run_read(connection: Connection, fn: Callable[[Tx], T], *, faults: FaultPoints | None = None) -> T:
    """Runs fn on one snapshot. Raises what fn raised, or a StorageError."""
    raw = driver_connection(connection)
    try:
        if faults:
            faults.before(Point.read)
        raw.execute("BEGIN")
        result = fn(connection)
        if faults:
            faults.after(Point.read)
        raw.execute("COMMIT")
        return result
    except Exception as error:  # raised again, at most in our own words; the snapshot must not stay open
        _roll_back(connection, raw)
        if _made_tolerant(raw, error):
            return run_read(connection, fn, faults=faults)
        translated = translate(error)
        if translated is error:
            raise
        raise translated from error
    except BaseException:  # a power cut
        _roll_back(connection, raw)
        raise


def driver_connection(connection: Connection) -> sqlite3.Connection:
    """The sqlite3 connection below; BEGIN and COMMIT go to it directly, which costs half of SQLAlchemy's own."""
    return cast("sqlite3.Connection", connection.connection.dbapi_connection)


def run_statement(tx: Tx, sql: str, values: Any) -> sqlite3.Cursor:
    """See `database.run_sql`."""
    raw = driver_connection(tx)
    try:
        return raw.executemany(sql, cast("list[Any]", values)) if isinstance(values, list) else raw.execute(sql, values)
    except sqlite3.IntegrityError as error:
        raise IntegrityError(sql, None, error) from error


def watch_statements(connection: Connection, faults: FaultPoints) -> None:
    """Puts the fault points around every statement of the connection; an injected error is wrapped as a real one is."""

    def run_directly(tx: Tx, sql: str, values: Any) -> sqlite3.Cursor:
        faults.before(Point.statement)
        cursor = run_statement(tx, sql, values)
        faults.after(Point.statement)
        return cursor

    def run(cursor: sqlite3.Cursor, statement: str, parameters: Any, context: object) -> bool:
        faults.before(Point.statement)
        cursor.execute(statement, parameters)
        faults.after(Point.statement)
        return True

    def run_many(cursor: sqlite3.Cursor, statement: str, parameters: Any, context: object) -> bool:
        faults.before(Point.statement)
        cursor.executemany(statement, parameters)
        faults.after(Point.statement)
        return True

    event.listen(connection.engine, "do_execute", run)
    event.listen(connection.engine, "do_executemany", run_many)
    connection.execution_options(**{RUN_SQL: run_directly})


class _GroupLost(Exception):
    """The transaction ended before its commit, and the work of several functions with it."""


class _FunctionFailed(Exception):
    """A function failed that had no savepoint, and its work cannot be told from that of the others."""


class _Group:
    def __init__(self, connection: Connection, faults: FaultPoints | None) -> None:
        self._connection = connection
        self._raw = driver_connection(connection)
        self._faults = faults

    def run(self, jobs: Sequence[Job], enough: Callable[[], bool]) -> list[Outcome]:
        return self._run(jobs, enough)

    def _run(self, jobs: Sequence[Job], enough: Callable[[], bool], again: int = 0) -> list[Outcome]:
        """`again` are the functions that ran before one of them failed: they run once more, now with savepoints."""
        outcomes: list[Outcome] = []
        kept = 0  # functions whose work waits for the commit
        try:
            for job in jobs:
                if not kept and (refusal := self._begin()):
                    return outcomes + [JobFailure(translate(refusal)) for _ in jobs[len(outcomes) :]]
                outcomes.append(self._run_one(job, kept, savepoint=again > 0 and kept > 0))
                kept += isinstance(outcomes[-1], JobSuccess)
                if len(outcomes) >= again and enough():
                    break
            return self._commit(outcomes) if kept else outcomes
        except _FunctionFailed:
            self.roll_back()
            return self._run(jobs, enough, len(outcomes) + 1)
        except _GroupLost:
            self.roll_back()
            ran = jobs[: len(outcomes) + 1]  # the one that ended it has no outcome yet
            return [outcome for job in ran for outcome in self._run([job], enough)]

    def roll_back(self) -> None:
        _roll_back(self._connection, self._raw)

    def _begin(self) -> Exception | None:
        try:
            self._step("BEGIN IMMEDIATE", Point.begin)
        except Exception as error:  # noqa: BLE001 - returned, and reported to every function of the group
            self.roll_back()
            return error
        return None

    def _run_one(self, job: Job, kept: int, *, savepoint: bool) -> Outcome:
        """Runs one function. The first of a transaction needs no savepoint: when it fails there is nothing else to
        save."""
        try:
            if savepoint:
                self._step("SAVEPOINT job", Point.savepoint)
            if self._faults:
                self._faults.before(Point.job)
            value = job(self._connection)
            if self._faults:
                self._faults.after(Point.job)
            if not self._raw.in_transaction:
                raise InvariantBroken("A transaction function ended its own transaction.")
            if savepoint:
                self._step("RELEASE job", Point.release)
            return JobSuccess(value)
        except Exception as error:  # reported to the caller of this function, or the group is replayed
            if _made_tolerant(self._raw, error):
                raise _GroupLost from error
            self._undo_one(error, kept, savepoint=savepoint)
            return JobFailure(translate(error))

    def _undo_one(self, error: Exception, kept: int, *, savepoint: bool) -> None:
        if not kept:
            self.roll_back()
            return
        nested = self._connection.in_nested_transaction()
        if nested or not self._raw.in_transaction or result_code(error) in ENDS_TRANSACTION:
            raise _GroupLost from error
        if not savepoint:
            raise _FunctionFailed from error
        try:
            self._raw.execute("ROLLBACK TO job")
            self._raw.execute("RELEASE job")
        except sqlite3.Error as failure:
            raise _GroupLost from failure

    def _commit(self, outcomes: list[Outcome]) -> list[Outcome]:
        first = next(at for at, outcome in enumerate(outcomes) if isinstance(outcome, JobSuccess))
        try:
            if self._faults:
                self._faults.before(Point.commit)
            self._raw.execute("COMMIT")
        except Exception as error:  # reported to the caller, or the group is replayed
            self.roll_back()
            if first + 1 < len(outcomes):  # also one that failed: perhaps for what it saw of the work that is lost
                raise _GroupLost from error
            return [*outcomes[:first], JobFailure(commit_failure(error))]
        try:
            if self._faults:
                self._faults.after(Point.commit)
        except Exception as error:  # noqa: BLE001 - reported to the caller
            lost = f"The answer to the commit was lost: {error}"
            return [*outcomes[:first], *(JobFailure(CommitUnknown(lost)) for _ in outcomes[first:])]
        return outcomes

    def _step(self, sql: str, point: Point) -> None:
        if self._faults:
            self._faults.before(point)
        self._raw.execute(sql)
        if self._faults:
            self._faults.after(point)


def _made_tolerant(raw: sqlite3.Connection, error: Exception) -> bool:
    """Makes a connection accept stored texts that are not UTF-8: one damaged row must not hide all others.

    The replacement characters match no checksum. True when it was not tolerant before, so that a retry may succeed.
    """
    if not is_undecodable(error) or raw.text_factory is tolerant_text:
        return False
    raw.text_factory = tolerant_text
    return True


def tolerant_text(text: bytes) -> str:
    """A stored text, in which replacement characters stand for what is not UTF-8."""
    return text.decode("utf-8", "replace")


def _roll_back(connection: Connection, raw: sqlite3.Connection) -> None:
    # SQLAlchemy first, so that it forgets its own savepoints; it does nothing if it never saw a statement.
    connection.rollback()
    if raw.in_transaction:
        raw.execute("ROLLBACK")
