"""The files of a database that somebody deletes, replaces or cuts off: nothing is acknowledged any more, nothing is
lost, and the next start says what to do."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kelpie.core.errors import CommitUnknown, DatabaseDamaged, DatabaseLost, StorageUnavailable
from kelpie.world.database import Tx
from kelpie.world.sqlite.database import SqliteDatabase
from tests.acceptance.served import wait_for
from tests.contract.database import create, put, stored

DEADLINE_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.db"


async def opened(path: Path) -> SqliteDatabase:
    database = SqliteDatabase.open(path)
    await database.transact(create)
    await database.transact(put(1, "kept"))
    return database


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    with closing(sqlite3.connect(other)) as made:
        made.execute("CREATE TABLE other (id INTEGER)")
        made.commit()
    other.replace(path)


def delete_log(path: Path) -> None:
    log_of(path).unlink()


def cut_log(path: Path) -> None:
    with log_of(path).open("r+b") as file:
        file.truncate(0)


LOSSES = pytest.mark.parametrize("lose", [delete, replace, delete_log, cut_log])


def rescued(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.rescued*"))


@LOSSES
async def test_nothing_is_acknowledged_after_a_loss_and_a_copy_is_saved(
    path: Path, lose: Callable[[Path], None]
) -> None:
    database = await opened(path)
    try:
        lose(path)
        with pytest.raises(DatabaseLost, match=r"while the server was running, so nothing can be stored\. Stop the"):
            await database.transact(put(2))
        with pytest.raises(DatabaseLost):  # at once, as all that follows
            await database.read(stored)
        assert isinstance(database.trouble(), DatabaseLost)
        [copy] = rescued(path)
        if lose is not cut_log:  # the pages that were cut off are gone
            assert _rows(copy) == [1]
    finally:
        await database.close()


async def test_an_idle_server_notices_by_itself(path: Path) -> None:
    database = await opened(path)
    try:
        delete(path)
        await asyncio.to_thread(wait_for, "the loss is noticed", lambda: database.trouble() is not None, DEADLINE_S)
        with pytest.raises(DatabaseLost):
            await database.read(stored)
    finally:
        await database.close()


async def test_a_commit_into_a_file_that_was_deleted_meanwhile_is_in_doubt(path: Path) -> None:
    database, told = await opened(path), list[bool]()
    database.when_in_doubt(lambda: told.append(True))

    def during(tx: Tx) -> None:
        put(2)(tx)
        delete(path)

    try:
        with pytest.raises(CommitUnknown):
            await database.transact(during)
        assert told and _rows(rescued(path)[0]) == [1, 2]
    finally:
        await database.close()


async def test_a_restored_file_is_not_destroyed_by_the_old_log(path: Path) -> None:
    """The server is killed after somebody moved a backup into place; the log of the old file must not be applied."""
    database = await opened(path)
    replace(path)
    with pytest.raises(DatabaseLost):
        await database.transact(put(2))
    assert not log_of(path).exists()
    again = SqliteDatabase.open(path)
    assert await again.read(lambda tx: tx.exec_driver_sql("SELECT name FROM sqlite_master").scalar()) == "other"
    await again.close()
    await database.close()


async def test_a_checkpoint_of_another_program_is_no_loss(path: Path) -> None:
    database = await opened(path)
    try:
        with closing(sqlite3.connect(path)) as other:
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        assert log_of(path).stat().st_size == 0
        await database.transact(put(2))
        assert await database.read(stored) == [1, 2] and database.trouble() is None
    finally:
        await database.close()


async def test_without_its_file_a_start_names_the_copy(path: Path) -> None:
    database = await opened(path)
    delete(path)
    with pytest.raises(DatabaseLost):
        await database.transact(put(2))
    await database.close()
    with pytest.raises(DatabaseLost, match=r"test\.db\.rescued1 holds what the server had .* Rename that file"):
        SqliteDatabase.open(path)
    rescued(path)[0].rename(path)
    again = SqliteDatabase.open(path)
    assert await again.read(stored) == [1]
    await again.close()


def test_a_log_without_its_database_is_not_overwritten(path: Path) -> None:
    log_of(path).write_bytes(b"x" * 100)
    with pytest.raises(DatabaseLost, match=r"its log test\.db-wal is there\. Restore test\.db from a backup"):
        SqliteDatabase.open(path)
    assert log_of(path).read_bytes() == b"x" * 100


async def _make_with_backup(path: Path) -> None:
    database = await opened(path)
    await database.back_up("before-test")
    await database.close()


def test_damage_is_named_at_the_start_with_the_copies_beside_it(path: Path) -> None:
    asyncio.run(_make_with_backup(path))
    whole = path.read_bytes()
    for damaged, why in ((whole[:4096], "is cut off: "), (b"\x99" * len(whole), "is not a SQLite database")):
        path.write_bytes(damaged)
        with pytest.raises(DatabaseDamaged, match=f"{why}.*restore test.db from a backup.*test.db.before-test.backup"):
            SqliteDatabase.open(path)
    path.write_bytes(whole)
    log_of(path).write_bytes(b"\x99" * 4096)
    with pytest.raises(DatabaseDamaged, match=r"The log .* is damaged.* move the log away"):
        SqliteDatabase.open(path)


def _cut_checkpoint_short(path: Path, target: Path) -> None:
    log_of(target).write_bytes(log_of(path).read_bytes())
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(FULL)")
    target.write_bytes(path.read_bytes()[:-4096])


async def test_a_checkpoint_that_was_cut_short_is_no_damage(path: Path) -> None:
    """A server that is killed within a checkpoint may leave the header of the file before its last pages."""
    database = await opened(path)
    for number in range(2, 12):
        await database.transact(put(number, "x" * 4_000))
    killed = path.with_name("killed.db")
    _cut_checkpoint_short(path, killed)
    again = SqliteDatabase.open(killed)
    assert await again.read(stored) == list(range(1, 12))
    await again.close()
    await database.close()


async def test_trouble_lasts_until_a_write_succeeds(path: Path) -> None:
    database = await opened(path)
    try:
        await database.transact(lambda tx: tx.exec_driver_sql("PRAGMA max_page_count=1"))
        with pytest.raises(StorageUnavailable):
            await database.transact(put(2, "x" * 100_000))
        assert isinstance(database.trouble(), StorageUnavailable)
        await database.transact(lambda tx: tx.exec_driver_sql("PRAGMA max_page_count=1000"))
        assert database.trouble() is None
    finally:
        await database.close()


def _rows(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [row[0] for row in database.execute("SELECT id FROM contract_rows ORDER BY id")]
