"""How fast the embedded database is on this disk; prints one line of JSON.

    python bench/storage.py [--directory DIR] [--seconds S]

The numbers of a disk differ by a factor of ten with what else it does, so compare runs side by side only.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sqlalchemy import bindparam, insert, select

from kelpie.storage.schema import ensure_schema
from kelpie.storage.tables import nodes as narrow
from kelpie.world.database import Tx
from kelpie.world.sqlite.database import SqliteDatabase

WRITERS = 64
_INSERT = insert(narrow)
_FIND = select(narrow).where(narrow.c.id == bindparam("wanted"))


def put(number: int) -> Callable[[Tx], None]:
    return lambda tx: put_row(tx, number)


def put_row(tx: Tx, number: int) -> None:
    tx.execute(_INSERT, {"id": f"node-{number}", "incarnation": number, "address": "x" * 100, "expires_at": number})


def find(tx: Tx) -> Any:
    return tx.execute(_FIND, {"wanted": "node-7"}).one()


async def timed(call: Callable[[int], Awaitable[object]], seconds: float) -> list[float]:
    """How long each of the calls took, one after the other, in seconds."""
    took: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        await call(len(took))
        took.append(time.perf_counter() - start)
    return took


async def many_writers(database: SqliteDatabase, seconds: float) -> float:
    """Transactions per second of many callers who each wait for their own."""
    end = time.perf_counter() + seconds
    done = 0

    async def writer(number: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            number += WRITERS
            await database.transact(put(number))
            done += 1

    start = time.perf_counter()
    await asyncio.gather(*(writer(10_000_000 + number) for number in range(WRITERS)))
    return done / (time.perf_counter() - start)


async def insert_us(database: SqliteDatabase, count: int = 20_000) -> float:
    """What one insert costs inside a transaction."""

    def many(tx: Tx) -> float:
        start = time.perf_counter()
        for number in range(count):
            put_row(tx, 20_000_000 + number)
        return (time.perf_counter() - start) / count * 1e6

    return await database.transact(many)


async def measure(path: Path, seconds: float) -> dict[str, float]:
    start = time.perf_counter()
    database = SqliteDatabase.open(path)
    await ensure_schema(database)
    created_s = time.perf_counter() - start
    try:
        commits = await timed(lambda number: database.transact(put(number)), seconds)
        per_second = await many_writers(database, seconds)
        reads = await timed(lambda _: database.read(find), seconds)
        each_us = await insert_us(database)
    finally:
        await database.close()
    start = time.perf_counter()
    database = SqliteDatabase.open(path)
    await ensure_schema(database)
    opened_s = time.perf_counter() - start
    await database.close()
    return {
        "create_ms": created_s * 1e3,
        "open_ms": opened_s * 1e3,
        "commit_p50_ms": statistics.median(commits) * 1e3,
        "commit_p99_ms": statistics.quantiles(commits, n=100)[98] * 1e3,
        f"writers_{WRITERS}_per_s": per_second,
        "read_p50_us": statistics.median(reads) * 1e6,
        "read_p99_us": statistics.quantiles(reads, n=100)[98] * 1e6,
        "insert_us": each_us,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the embedded database.")
    parser.add_argument("--directory", help="on which disk; the system's temporary directory if not given")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each measurement runs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        found = asyncio.run(measure(Path(folder) / "bench.db", given.seconds))
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


if __name__ == "__main__":
    main()
