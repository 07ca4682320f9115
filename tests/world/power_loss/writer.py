"""A process that writes to a database from many tasks at once and prints the number of each acknowledged row."""

import asyncio
import sys
from pathlib import Path
from typing import cast

from kelpie.world.sqlite.connections import Synchronous
from kelpie.world.sqlite.database import SqliteDatabase
from tests.contract.database import create, put, stored

TASKS = 8
TEXTS = ("x" * 40, "y" * 3_000, "z" * 20_000)


async def work(path: Path, synchronous: Synchronous) -> None:
    database = SqliteDatabase.open(path, readers=1, synchronous=synchronous)
    await database.transact(create)
    start = max([0, *await database.read(stored)]) + 1

    async def add(first: int) -> None:
        number = first
        while True:
            print(await database.transact(put(number, TEXTS[number % len(TEXTS)])), flush=True)
            number += TASKS

    await asyncio.gather(*(add(start + task) for task in range(TASKS)))


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), cast("Synchronous", sys.argv[2])))
