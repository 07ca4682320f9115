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
from typing import Self

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
        self._rng = random.Random(SEED)
        environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "POWER_LOSS_DATABASE": str(self.path),
            "POWER_LOSS_JOURNAL": str(self._journal),
        }
        self._writers = subprocess.Popen(
            (sys.executable, "-m", "tests.world.power_loss.writer", str(self.path), synchronous),
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writers.communicate()
        assert self._writers.returncode == 0

    def round(self) -> Losses:
        """Writes, is killed, and loses what was not synced."""
        asked, told = self._writers.stdin, self._writers.stdout
        assert asked is not None and told is not None
        print(file=asked, flush=True)
        writer = int(told.readline())
        wanted = self._rng.randint(1, ACKNOWLEDGED_MAX)
        for number, line in enumerate(told, 1):
            if line.startswith("ended"):
                assert int(line.split()[1]) == -signal.SIGKILL, "the writer ended by itself"
                return cut_power(self.path, self._journal, self._rng)
            self.acknowledged.add(int(line))
            if number == wanted:
                os.kill(writer, signal.SIGKILL)
        raise AssertionError("what starts the writers ended")

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
    gone = 0
    with Disk(tmp_path, library, "FULL") as disk:
        for number in range(rounds):
            losses = disk.round()
            gone += losses.dropped + losses.torn
            assert disk.damage() is None, f"round {number}, POWER_LOSS_SEED={SEED}, {losses}"
    assert gone > rounds / 4, "the cuts met hardly any write that was not synced"


@pytest.mark.needs("cc")
def test_a_database_that_does_not_sync_is_found_out(tmp_path: Path, library: Path) -> None:
    with Disk(tmp_path, library, "OFF") as disk:
        for _ in range(20):
            disk.round()
            if disk.damage() is not None:
                return
    raise AssertionError("twenty power cuts did no harm to a database that never syncs")
