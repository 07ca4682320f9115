"""The embedded database: what only a real file, real threads and a real death of the process can show."""

import asyncio
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from kelpie.core.errors import CommitUnknown, DiskFull, Overloaded, StorageBusy, StorageError
from kelpie.fairness.processor_time import ProcessorTime, Usage
from kelpie.world.database import Tx
from kelpie.world.sqlite import connections as sqlite_connection
from kelpie.world.sqlite import database as adapter
from kelpie.world.sqlite.connections import memory_connection
from kelpie.world.sqlite.database import SqliteDatabase
from kelpie.world.sqlite.group_commit import JobFailure, Outcome
from tests.contract.database import create, put, stored

DEADLINE_S = 60.0


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    opened = SqliteDatabase.open(tmp_path / "test.db")
    await opened.transact(create)
    yield opened
    await opened.close()


class Gate:
    """A transaction that keeps the writer busy until it is opened, so that what follows is one group."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def fn(self, tx: Tx) -> None:
        self.entered.set()
        assert self.open.wait(DEADLINE_S)

    async def close_writer(self, database: SqliteDatabase) -> "asyncio.Future[None]":
        held = asyncio.ensure_future(database.transact(self.fn))
        assert await asyncio.to_thread(self.entered.wait, DEADLINE_S)
        return held


def pragma(name: str) -> Callable[[Tx], Any]:
    return lambda tx: tx.exec_driver_sql(f"PRAGMA {name}").scalar()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_what_is_acknowledged_is_on_disk(database: SqliteDatabase) -> None:
    assert await database.transact(pragma("synchronous")) == 2  # FULL
    assert await database.transact(pragma("journal_mode")) == "wal"
    assert await database.transact(pragma("foreign_keys")) == 1
    assert await database.read(pragma("query_only")) == 1


async def test_those_who_waited_share_one_commit_and_one_message_to_the_loop(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A group is bounded in time; a clock that stands still lets that bound, which is another test's, cut nothing here.
    monkeypatch.setattr(adapter, "monotonic_ns", lambda: 0)
    gate = Gate()
    held = await gate.close_writer(database)
    loop = asyncio.get_running_loop()
    calls: list[object] = []
    original = loop.call_soon_threadsafe

    def counting(callback: Any, *args: Any, **kwargs: Any) -> asyncio.Handle:
        if callback == database._settle_writes:
            calls.append(callback)
        return original(callback, *args, **kwargs)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
    work = [asyncio.ensure_future(database.transact(put(n))) for n in range(100)]
    await asyncio.sleep(0)
    gate.open.set()
    await held
    assert await asyncio.gather(*work) == list(range(100))
    assert len(calls) == 2  # the gate, and the hundred


async def test_an_unknown_outcome_is_told_to_all_before_its_caller_hears_of_it(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    database.when_in_doubt(lambda: order.append("all"))
    original = adapter.run_group

    def loses_answer(connection: Any, jobs: Any, **kwargs: Any) -> list[Outcome]:
        return [JobFailure(CommitUnknown("lost")) for _ in original(connection, jobs, **kwargs)]

    monkeypatch.setattr(adapter, "run_group", loses_answer)
    with pytest.raises(CommitUnknown):
        await database.transact(put(1))
    order.append("caller")
    assert order == ["all", "caller"]
    assert await database.read(stored) == [1]


async def test_a_caller_that_goes_when_its_answer_is_on_the_way_leaves_doubt(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    database.when_in_doubt(lambda: told.append("all"))
    original = adapter._settle
    work = asyncio.ensure_future(database.transact(put(1)))

    def settle_and_cancel(settled: Any) -> None:
        original(settled)
        work.cancel()

    monkeypatch.setattr(adapter, "_settle", settle_and_cancel)
    with pytest.raises(asyncio.CancelledError):
        await work
    assert told == ["all"]


async def test_a_caller_that_goes_keeps_the_others_of_its_group_from_nothing(database: SqliteDatabase) -> None:
    gate = Gate()
    held = await gate.close_writer(database)
    gone, stays = (asyncio.ensure_future(database.transact(put(number))) for number in (1, 2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait((gone,))
    gate.open.set()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(held, stays)
        assert await database.read(stored) == [1, 2], "its work stays"


async def test_nobody_is_told_before_the_commit(database: SqliteDatabase, tmp_path: Path) -> None:
    """While a later function of the group still runs, the earlier ones are neither acknowledged nor visible."""
    first, second = Gate(), Gate()
    held = await first.close_writer(database)
    early = asyncio.ensure_future(database.transact(put(1)))
    late = asyncio.ensure_future(database.transact(second.fn))
    await asyncio.sleep(0)
    first.open.set()
    await held
    assert await asyncio.to_thread(second.entered.wait, DEADLINE_S)
    assert not early.done()
    assert await database.read(stored) == []
    second.open.set()
    await asyncio.gather(early, late)
    assert await database.read(stored) == [1]


async def test_a_full_disk_is_told_only_to_the_one_that_does_not_fit(database: SqliteDatabase) -> None:
    runs: list[int] = []

    def noting(number: int, text: str) -> Callable[[Tx], int]:
        def fn(tx: Tx) -> int:
            runs.append(number)
            return put(number, text)(tx)

        return fn

    pages = await database.transact(pragma("page_count"))
    await database.transact(pragma(f"max_page_count={pages + 20}"))
    gate = Gate()
    held = await gate.close_writer(database)
    texts = {1: "small", 2: "small", 3: "x" * 1_000_000, 4: "small"}
    work = [asyncio.ensure_future(database.transact(noting(n, text))) for n, text in texts.items()]
    await asyncio.sleep(0)
    gate.open.set()
    await held
    results = await asyncio.gather(*work, return_exceptions=True)
    assert [result if isinstance(result, int) else type(result) for result in results] == [1, 2, DiskFull, 4]
    assert "full" in str(results[2])
    assert runs == [1, 2, 3, 1, 2, 3, 4]  # the group that was lost, then one by one
    assert await database.read(stored) == [1, 2, 4]
    await database.transact(pragma(f"max_page_count={pages + 10_000}"))
    assert await database.transact(put(3, texts[3])) == 3


async def test_the_queues_are_bounded(tmp_path: Path) -> None:
    database = SqliteDatabase.open(tmp_path / "test.db", readers=1, waiting_max=3)
    await database.transact(create)
    writes, reads = Gate(), Gate()
    held = [await writes.close_writer(database), asyncio.ensure_future(database.read(reads.fn))]
    assert await asyncio.to_thread(reads.entered.wait, DEADLINE_S)
    accepted = [asyncio.ensure_future(database.transact(put(n))) for n in range(3)]
    waiting = [asyncio.ensure_future(database.read(stored)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as refusal:
        await database.transact(put(9))
    assert refusal.value.retry_after_s > 0
    with pytest.raises(Overloaded):
        await database.read(stored)
    writes.open.set()
    reads.open.set()
    await asyncio.gather(*held)
    assert await asyncio.gather(*accepted) == [0, 1, 2]
    await asyncio.gather(*waiting)
    assert await database.transact(put(9)) == 9
    await database.close()


async def test_a_long_read_keeps_nobody_from_writing(database: SqliteDatabase) -> None:
    gate = Gate()

    def slow(tx: Tx) -> list[list[int]]:
        before = stored(tx)
        gate.fn(tx)
        return [before, stored(tx)]

    reading = asyncio.ensure_future(database.read(slow))
    assert await asyncio.to_thread(gate.entered.wait, DEADLINE_S)
    await database.transact(put(1))
    assert await database.read(stored) == [1]
    gate.open.set()
    assert await reading == [[], []]


async def test_a_bug_in_a_function_does_not_end_the_writer(database: SqliteDatabase) -> None:
    def leaves(tx: Tx) -> None:
        raise SystemExit(3)

    for call in (database.transact, database.read):
        with pytest.raises(Exception, match="SystemExit"):
            await call(leaves)
    await database.transact(put(1))
    assert await database.read(stored) == [1]


async def test_another_process_that_holds_the_file_makes_it_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT_MS", 10)
    database = SqliteDatabase.open(tmp_path / "test.db")
    await database.transact(create)
    other = sqlite3.connect(tmp_path / "test.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageBusy):
        await database.transact(put(1))
    other.execute("ROLLBACK")
    other.close()
    assert await database.transact(put(1)) == 1
    await database.close()


async def test_what_was_stored_is_there_when_opened_again(tmp_path: Path) -> None:
    first = SqliteDatabase.open(tmp_path / "test.db")
    await first.transact(create)
    await asyncio.gather(*(first.transact(put(n)) for n in range(10)))
    await first.close()
    second = SqliteDatabase.open(tmp_path / "test.db")
    assert await second.read(stored) == list(range(10))
    await second.close()


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, this is not a database. " * 100)
    with pytest.raises(StorageError, match=r"letter\.txt"):
        SqliteDatabase.open(path)
    with pytest.raises(StorageError, match="missing"):
        SqliteDatabase.open(tmp_path / "missing" / "kelpie.db")


async def test_a_copy_is_whole_while_others_write(database: SqliteDatabase) -> None:
    await database.transact(put(0))
    writing = [asyncio.ensure_future(database.transact(put(n, "x" * 1000))) for n in range(1, 200)]
    copy = await database.back_up("before")
    await asyncio.gather(*writing)
    with sqlite3.connect(copy) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        ids = [row[0] for row in opened.execute("SELECT id FROM contract_rows ORDER BY id")]
    opened.close()
    assert ids == list(range(len(ids)))
    assert ids
    assert copy.name == "test.db.before.backup"
    assert not [name for name in names(copy.parent) if ".part" in name]


async def test_a_copy_that_cannot_be_made_is_told_and_leaves_nothing(database: SqliteDatabase, tmp_path: Path) -> None:
    (tmp_path / "test.db.before.backup").mkdir()
    before = names(tmp_path)
    with pytest.raises(StorageError, match="cannot be made"):
        await database.back_up("before")
    assert names(tmp_path) == before


async def test_the_log_is_moved_into_the_file_when_nobody_writes(
    database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = threading.Event()

    def move(writer: Connection) -> None:
        sqlite_connection.move_log(writer)
        moved.set()

    monkeypatch.setattr(adapter, "move_log", move)
    for number in range(adapter.CHECKPOINT_AFTER):
        await database.transact(put(number))
    assert await asyncio.to_thread(moved.wait, DEADLINE_S)
    (tmp_path / "copy.db").write_bytes((tmp_path / "test.db").read_bytes())  # without the log
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        in_the_file = [number for (number,) in copy.execute("SELECT id FROM contract_rows ORDER BY id")]
    assert in_the_file == await database.read(stored)


async def test_the_log_is_moved_into_the_file_when_somebody_always_writes(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = threading.Event()
    monkeypatch.setattr(adapter, "IDLE_S", DEADLINE_S)
    monkeypatch.setattr(adapter, "move_log", lambda writer: moved.set())
    for number in range(adapter.CHECKPOINT_LATEST - 1):  # one more has made the table
        await database.transact(put(number))
        assert not moved.is_set()
    await database.transact(put(-1))
    assert moved.is_set()


async def test_a_log_that_cannot_be_moved_keeps_nobody_from_writing(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = 0

    def fail(writer: object) -> None:
        nonlocal tried
        tried += 1
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(adapter, "move_log", fail)
    for number in range(2 * adapter.CHECKPOINT_LATEST + 2):
        await database.transact(put(number))
    assert tried >= 2
    assert len(await database.read(stored)) == 2 * adapter.CHECKPOINT_LATEST + 2


def test_a_database_in_memory_is_set_up_like_the_real_one() -> None:
    connection = memory_connection()
    create(connection)
    put(1)(connection)
    assert stored(connection) == [1]
    assert pragma("foreign_keys")(connection) == 1
    assert memory_connection().exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar() == 0


WRITER = """
import asyncio, os, sys
from kelpie.world.sqlite.database import SqliteDatabase
from tests.contract.database import create, put

async def worker(database, first):
    for number in range(first, 10**9, 8):
        await database.transact(put(number))
        os.write(1, b"%d\\n" % number)

async def main():
    database = SqliteDatabase.open(sys.argv[1])
    await database.transact(create)
    await asyncio.gather(*(worker(database, first) for first in range(8)))

asyncio.run(main())
"""


def acknowledged_before_death(path: Path, at_least: int) -> set[int]:
    """Runs a process that writes, kills it in the middle, and returns what it had been told is stored."""
    root = Path(__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert child.stdout
    lines = [child.stdout.readline() for _ in range(at_least)]
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.readlines()  # `communicate` with a time-out would pass by what is read ahead already
    child.wait(DEADLINE_S)
    child.stdout.close()
    return {int(line) for line in lines + rest}


async def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    acknowledged = await asyncio.to_thread(acknowledged_before_death, tmp_path / "test.db", 300)
    assert len(acknowledged) >= 300
    database = SqliteDatabase.open(tmp_path / "test.db")
    kept = set(await database.read(stored))
    await database.close()
    assert acknowledged <= kept
    assert len(kept - acknowledged) <= 8  # at most what each of the eight was waiting for


async def test_the_time_of_statements_is_charged_to_the_request_that_made_them(database: SqliteDatabase) -> None:
    now = itertools.count()  # a clock that stands still, nearly: only the threads of the database take time
    time = ProcessorTime(lambda: next(now), 0.5)
    await time.admit("others")

    async def charged(work: Coroutine[Any, Any, object]) -> int:
        usage = await time.admit("ours")
        assert usage is not None
        added: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Usage, "add", lambda _, used_ns: added.append(used_ns))
            await usage.run(work)
        return max(added)

    assert await charged(database.read(stored)) > 1000
    assert await charged(database.transact(put(1))) > 1000


async def test_reads_do_not_wait_for_a_long_one(database: SqliteDatabase) -> None:
    opened = threading.Event()
    held = [asyncio.ensure_future(database.read(lambda tx: opened.wait(DEADLINE_S))) for _ in range(3)]
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(5):
            assert await database.read(pragma("query_only")) == 1
    assert not any(each.done() for each in held)
    opened.set()
    assert await asyncio.gather(*held) == [True] * 3


async def test_one_reader_is_enough_for_reads_one_after_another(database: SqliteDatabase) -> None:
    readers = {await database.read(lambda tx: threading.get_ident()) for _ in range(20)}
    assert len(readers) == 1
