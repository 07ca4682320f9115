"""Power cuts at the level of files: real SQLite, its threads and its syncs, and a disk that loses or tears every write
that was not synced. What was acknowledged is there afterwards, and the database is whole.

`POWER_LOSS_SEED=<seed>` draws the same losses again; the moment of a kill is the machine's.
"""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kelpie.core.errors import StorageError
from kelpie.world.sqlite.database import SqliteDatabase
from tests.contract.database import stored
from tests.world.power_loss.losses import Losses, cut_power

HERE = Path(__file__).parent / "power_loss"
ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("POWER_LOSS_SEED", "1"))
ACKNOWLEDGED_MAX = 60  # in a round, before the kill


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("power-loss") / "journal.so"
    subprocess.run(("cc", "-shared", "-fPIC", "-O1", "-o", str(built), str(HERE / "journal.c")), check=True)
    return built


class Disk:
    """A database on a disk whose power is cut again and again."""

    def __init__(self, directory: Path, library: Path, synchronous: str) -> None:
        self.path = directory / "test.db"
        self.acknowledged: set[int] = set()
        self._journal = directory / "journal"
        self._library = library
        self._synchronous = synchronous
        self._rng = random.Random(SEED)

    def round(self) -> Losses:
        """Writes, is killed, and loses what was not synced."""
        environment = {
            **os.environ,
            "LD_PRELOAD": str(self._library),
            "POWER_LOSS_DATABASE": str(self.path),
            "POWER_LOSS_JOURNAL": str(self._journal),
        }
        writer = (sys.executable, "-m", "tests.world.power_loss.writer", str(self.path), self._synchronous)
        with subprocess.Popen(writer, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            wanted = self._rng.randint(1, ACKNOWLEDGED_MAX)
            for number, line in enumerate(process.stdout, 1):
                self.acknowledged.add(int(line))
                if number == wanted:
                    process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL, "the writer ended by itself"
        return cut_power(self.path, self._journal, self._rng)

    def damage(self) -> str | None:
        """What is wrong with the database after a restart; None when it is whole and has all that it must have."""
        try:
            found = set(asyncio.run(_stored(self.path)))
            with closing(sqlite3.connect(self.path)) as database:
                (verdict,) = database.execute("PRAGMA integrity_check").fetchone()
        except (StorageError, sqlite3.Error) as error:
            return f"cannot be read: {error!r}"
        if verdict != "ok":
            return f"integrity check: {verdict}"
        lost = sorted(self.acknowledged - found)
        return f"acknowledged and lost: {lost}" if lost else None


async def _stored(path: Path) -> list[int]:
    database = SqliteDatabase.open(path, readers=1)
    try:
        return await database.read(stored)
    finally:
        await database.close()


@pytest.mark.long
@pytest.mark.needs("cc")
@pytest.mark.parametrize("rounds", [20, pytest.param(500, marks=pytest.mark.soak)])
def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path, library: Path, rounds: int) -> None:
    disk, gone = Disk(tmp_path, library, "FULL"), 0
    for number in range(rounds):
        losses = disk.round()
        gone += losses.dropped + losses.torn
        assert disk.damage() is None, f"round {number}, POWER_LOSS_SEED={SEED}, {losses}"
    assert gone > rounds / 4, "the cuts met hardly any write that was not synced"


@pytest.mark.needs("cc")
def test_a_database_that_does_not_sync_is_found_out(tmp_path: Path, library: Path) -> None:
    disk = Disk(tmp_path, library, "OFF")
    for _ in range(20):
        disk.round()
        if disk.damage() is not None:
            return
    raise AssertionError("twenty power cuts did no harm to a database that never syncs")
