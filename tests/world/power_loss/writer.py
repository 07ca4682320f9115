"""Processes that write to a database from many tasks at once and print the number of each acknowledged row.

For each line of its input this one forks such a process, which has all that it runs and has opened nothing yet, and
prints how it ended. Starting one anew took most of the time of a round.
"""

import asyncio
import os
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
            tell(await database.transact(put(number, TEXTS[number % len(TEXTS)])))
            number += TASKS

    await asyncio.gather(*(add(start + task) for task in range(TASKS)))


def tell(*facts: int | str) -> None:
    """Writes a line in one piece: what is killed in the middle leaves no half of it before the line of another."""
    os.write(sys.stdout.fileno(), (" ".join(map(str, facts)) + "\n").encode())


def main(path: Path, synchronous: Synchronous) -> None:
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            tell(os.getpid())
            asyncio.run(work(path, synchronous))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        tell("ended", os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]), cast("Synchronous", sys.argv[2]))
