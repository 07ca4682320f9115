"""Group commit with faults put around each of its steps, on a real SQLite in memory."""

import sqlite3
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, delete
from sqlalchemy.exc import SQLAlchemyError

from kelpie.core.errors import CommitUnknown, DiskFull, InvariantBroken, StorageBusy, StorageError
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from kelpie.world.sqlite.group_commit import (
    JOBS_MAX,
    Job,
    JobFailure,
    JobSuccess,
    Point,
    driver_connection,
    in_doubt,
    run_group,
    run_read,
    watch_statements,
)
from tests.contract.database import Refused, create, put, put_then_refuse, rows, stored

FULL = ("database or disk is full", sqlite3.SQLITE_FULL)
BROKEN = ("disk I/O error", sqlite3.SQLITE_IOERR)
BUSY = ("database is locked", sqlite3.SQLITE_BUSY)


class PowerCut(BaseException):
    pass


class Faults:
    """Fails the n-th time a point is passed, counted from 0; notes every point."""

    def __init__(self, connection: Connection, **at: tuple[int, object]) -> None:
        self.passed: list[str] = []
        self._raw = driver_connection(connection)
        self._at = at

    def before(self, point: Point) -> None:
        self._pass(f"before_{point}")

    def after(self, point: Point) -> None:
        self._pass(f"after_{point}")

    def _pass(self, name: str) -> None:
        self.passed.append(name)
        turn, fault = self._at.get(name, (-1, None))
        if self.passed.count(name) - 1 != turn:
            return
        if isinstance(fault, tuple):
            text, code = fault
            if code == sqlite3.SQLITE_FULL:
                self._raw.rollback()  # as SQLite itself does
            error = sqlite3.OperationalError(text)
            error.sqlite_errorcode = code
            raise error
        assert isinstance(fault, type) and issubclass(fault, BaseException)
        raise fault


@pytest.fixture
def connection() -> Iterator[Connection]:
    opened = memory_connection()
    create(opened)
    yield opened
    opened.close()


def kinds(outcomes: list[JobSuccess | JobFailure]) -> list[object]:
    return [outcome.value if isinstance(outcome, JobSuccess) else type(outcome.error) for outcome in outcomes]


def test_a_group_is_one_transaction(connection: Connection) -> None:
    faults = Faults(connection)
    assert kinds(run_group(connection, [put(1), put(2), put(3)], faults=faults)) == [1, 2, 3]
    assert stored(connection) == [1, 2, 3]
    assert faults.passed.count("before_begin") == faults.passed.count("after_commit") == 1
    assert "before_savepoint" not in faults.passed


def test_a_group_with_a_failure_is_run_again_with_savepoints_and_committed_once(connection: Connection) -> None:
    faults = Faults(connection)
    assert kinds(run_group(connection, [put(1), put_then_refuse(2), put(3)], faults=faults)) == [1, Refused, 3]
    assert stored(connection) == [1, 3]
    assert faults.passed.count("before_begin") == 2
    assert faults.passed.count("before_commit") == faults.passed.count("after_commit") == 1
    assert faults.passed.count("before_savepoint") == 2


def test_a_function_that_refuses_leaves_nothing_of_its_work() -> None:
    with memory_connection() as connection:
        create(connection)
        assert kinds(run_group(connection, [put(1), put_then_refuse(2), put(3)])) == [1, Refused, 3]
        assert stored(connection) == [1, 3]


def test_functions_that_run_again_are_not_cut_off_by_the_time(connection: Connection) -> None:
    """Otherwise a failure at the end of a long group would run it once for each of its functions."""
    ticks = iter(range(0, 10**12, 8_000_000))  # every look at the clock is 8 ms later
    ran: list[int] = []

    def noted(number: int) -> Job:
        def fn(tx: Tx) -> int:
            ran.append(number)
            return put(number)(tx)

        return fn

    jobs = [noted(1), noted(2), put_then_refuse(3), noted(4)]
    assert kinds(run_group(connection, jobs, monotonic_ns=lambda: next(ticks), ms_max=20)) == [1, 2, Refused]
    assert ran == [1, 2, 1, 2]
    assert stored(connection) == [1, 2]


def test_a_failing_first_function_leaves_nothing_to_the_others(connection: Connection) -> None:
    assert kinds(run_group(connection, [put_then_refuse(1), put(1), put_then_refuse(2)])) == [Refused, 1, Refused]
    assert stored(connection) == [1]
    assert not driver_connection(connection).in_transaction


@pytest.mark.parametrize("fault", [FULL, BROKEN])
@pytest.mark.parametrize("point", ["before_job", "before_statement", "after_statement"])
def test_a_lost_group_is_replayed_one_by_one(connection: Connection, point: str, fault: object) -> None:
    faults = Faults(connection, **{point: (1, fault)})
    watch_statements(connection, faults)
    outcomes = run_group(connection, [put(1), put(2), put(3)], faults=faults)
    # The first two were lost and replayed, the third was never begun and is offered again.
    assert kinds(outcomes) == [1, 2]
    assert faults.passed.count("after_commit") == 2
    assert kinds(run_group(connection, [put(3)])) == [3]
    assert stored(connection) == [1, 2, 3]


@pytest.mark.parametrize("fault", [FULL, BROKEN])
@pytest.mark.parametrize("point", ["before_savepoint", "before_release"])
def test_a_group_that_is_lost_at_a_savepoint_is_replayed_one_by_one(
    connection: Connection, point: str, fault: object
) -> None:
    faults = Faults(connection, **{point: (0, fault)})
    outcomes = run_group(connection, [put(1), put(2), put_then_refuse(3)], faults=faults)
    assert kinds(outcomes) == [1, 2]
    assert faults.passed.count("after_commit") == 2
    assert kinds(run_group(connection, [put_then_refuse(3), put(4)])) == [Refused, 4]
    assert stored(connection) == [1, 2, 4]


def test_after_a_replay_each_is_reported_for_itself(connection: Connection) -> None:
    faults = Faults(connection, before_job=(1, FULL))

    def always_full(tx: Tx) -> None:
        driver_connection(tx).rollback()
        error = sqlite3.OperationalError(FULL[0])
        error.sqlite_errorcode = FULL[1]
        raise error

    assert kinds(run_group(connection, [put(1), always_full, put(2)], faults=faults)) == [1, DiskFull]
    assert stored(connection) == [1]


@pytest.mark.parametrize("fault", [FULL, BROKEN, BUSY])
def test_a_commit_that_fails_loses_the_group_and_replays_it(connection: Connection, fault: object) -> None:
    faults = Faults(connection, before_commit=(0, fault))
    assert kinds(run_group(connection, [put(1), put_then_refuse(2), put(3)], faults=faults)) == [1, Refused, 3]
    assert stored(connection) == [1, 3]
    assert faults.passed.count("after_commit") == 2


@pytest.mark.parametrize(("fault", "error"), [(FULL, DiskFull), (BUSY, StorageBusy), (BROKEN, CommitUnknown)])
def test_a_single_commit_that_fails_is_told_by_its_kind(connection: Connection, fault: object, error: object) -> None:
    assert kinds(run_group(connection, [put(1)], faults=Faults(connection, before_commit=(0, fault)))) == [error]
    assert stored(connection) == []
    assert kinds(run_group(connection, [put(1)])) == [1]


def _refuse_if_there(tx: Tx) -> str:
    if stored(tx):
        raise Refused
    return "nothing there"


def test_a_refusal_for_what_a_failed_commit_took_back_is_taken_back_too(connection: Connection) -> None:
    """It saw the work of another function of its group, which in the end never happened."""
    faults = Faults(connection, before_commit=(0, BUSY))
    assert kinds(run_group(connection, [put(1), _refuse_if_there], faults=faults)) == [1, Refused]
    connection.execute(delete(rows))
    connection.commit()
    # The third transaction is the replay of the first function: the second ran both once more, with savepoints.
    again = Faults(connection, before_commit=(0, BUSY), before_begin=(2, BUSY))
    assert kinds(run_group(connection, [put(1), _refuse_if_there], faults=again)) == [StorageBusy, "nothing there"]


def test_a_refusal_for_what_perhaps_never_happened_is_unknown(connection: Connection) -> None:
    faults = Faults(connection, after_commit=(0, BROKEN))
    jobs = [put_then_refuse(1), put(2), _refuse_if_there]
    assert kinds(run_group(connection, jobs, faults=faults)) == [Refused, CommitUnknown, CommitUnknown]


def test_a_lost_answer_to_a_commit_is_unknown_and_never_replayed(connection: Connection) -> None:
    faults = Faults(connection, after_commit=(0, BROKEN))
    outcomes = run_group(connection, [put(1), put_then_refuse(2), put(3)], faults=faults)
    assert kinds(outcomes) == [CommitUnknown] * 3
    assert stored(connection) == [1, 3]


@pytest.mark.parametrize(("fault", "error"), [(BUSY, StorageBusy), (BROKEN, StorageError), (FULL, DiskFull)])
def test_when_no_transaction_can_begin_everyone_is_told(connection: Connection, fault: object, error: object) -> None:
    faults = Faults(connection, before_begin=(0, fault))
    assert kinds(run_group(connection, [put(1), put(2)], faults=faults)) == [error, error]
    assert stored(connection) == []
    assert kinds(run_group(connection, [put(1), put(2)])) == [1, 2]


@pytest.mark.parametrize(
    "point",
    [
        "before_begin",
        "after_begin",
        "before_savepoint",
        "after_savepoint",
        "after_job",
        "before_release",
        "after_release",
        "before_commit",
    ],
)
def test_a_power_cut_before_the_commit_leaves_nothing(connection: Connection, point: str) -> None:
    jobs = [put(1), put(2), put_then_refuse(3)]
    with pytest.raises(PowerCut):
        run_group(connection, jobs, faults=Faults(connection, **{point: (0, PowerCut)}))
    assert not driver_connection(connection).in_transaction
    assert stored(connection) == []
    assert kinds(run_group(connection, [put(1), put(2)])) == [1, 2]


def test_a_power_cut_after_the_commit_keeps_it(connection: Connection) -> None:
    with pytest.raises(PowerCut):
        run_group(connection, [put(1), put(2)], faults=Faults(connection, after_commit=(0, PowerCut)))
    assert stored(connection) == [1, 2]


def test_a_function_that_ends_its_transaction_is_told_so(connection: Connection) -> None:
    def ends(tx: Tx) -> None:
        put(5)(tx)
        tx.rollback()

    assert kinds(run_group(connection, [put(1), ends])) == [1, InvariantBroken]
    assert stored(connection) == [1]


def test_a_savepoint_left_open_does_not_reach_the_next_function(connection: Connection) -> None:
    def leaves_open(tx: Tx) -> None:
        tx.begin_nested()
        put(5)(tx)
        raise Refused

    def nested(tx: Tx) -> str:
        with tx.begin_nested():
            put(2)(tx)
        return "ok"

    jobs: list[Job] = [put(1), leaves_open]
    assert kinds(run_group(connection, jobs)) == [1, Refused]
    assert not connection.in_nested_transaction()
    assert kinds(run_group(connection, [nested])) == ["ok"]
    assert stored(connection) == [1, 2]


@pytest.mark.parametrize(
    ("outcome", "awaited", "doubtful"),
    [
        (JobSuccess(1), True, False),
        (JobSuccess(1), False, True),
        (JobFailure(CommitUnknown("?")), True, True),
        (JobFailure(CommitUnknown("?")), False, True),
        (JobFailure(InvariantBroken("a bug")), True, True),
        (JobFailure(StorageBusy("later")), False, False),
        (JobFailure(Refused()), False, False),
    ],
)
def test_a_write_is_in_doubt_when_it_may_be_in_and_its_caller_does_not_know(
    outcome: JobSuccess | JobFailure, awaited: bool, doubtful: bool
) -> None:
    assert in_doubt(outcome, awaited=awaited) is doubtful


def test_a_group_is_bounded_in_number_and_time(connection: Connection) -> None:
    jobs = [put(n) for n in range(JOBS_MAX + 5)]
    assert len(run_group(connection, jobs)) == JOBS_MAX
    ticks = iter(range(0, 10**12, 8_000_000))  # every look at the clock is 8 ms later
    assert len(run_group(connection, jobs[JOBS_MAX:], monotonic_ns=lambda: next(ticks), ms_max=20)) == 3
    assert len(stored(connection)) == JOBS_MAX + 3


def test_a_read_leaves_no_transaction_behind_whatever_happens(connection: Connection) -> None:
    run_group(connection, [put(1)])
    assert run_read(connection, stored) == [1]
    with pytest.raises(StorageError):
        run_read(connection, stored, faults=Faults(connection, before_read=(0, BROKEN)))
    with pytest.raises(PowerCut):
        run_read(connection, stored, faults=Faults(connection, after_read=(0, PowerCut)))
    assert not driver_connection(connection).in_transaction
    assert run_read(connection, stored) == [1]


def test_an_error_of_ours_in_sql_is_not_taken_for_one_of_the_disk(connection: Connection) -> None:
    def wrong(tx: Tx) -> None:
        tx.exec_driver_sql("SELECT x FROM nowhere")

    (outcome,) = run_group(connection, [wrong])
    assert isinstance(outcome, JobFailure)
    assert type(outcome.error) is StorageError
    assert "nowhere" in str(outcome.error)
    assert isinstance(outcome.error.__cause__, SQLAlchemyError)
