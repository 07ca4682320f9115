"""The journal's own places in the fault gate: inside the transaction of each kind of commit, and right after it.

It stands between the product and its simulated database and looks which journal rows a transaction has added, so a
scenario can say "the power fails after the commit of a reply" instead of counting writes.
"""

import asyncio
import sqlite3  # noqa: TID251 - for its errors, which injected faults must be
from collections.abc import Callable
from functools import partial
from typing import Any

from kelpie.core.errors import CommitUnknown, StorageError
from kelpie.sim.database import SimDatabase, sqlite_error
from kelpie.sim.disk import Disk
from kelpie.sim.errors import PowerCut
from kelpie.sim.faults import Fault
from kelpie.world.commit_group import driver_connection
from kelpie.world.database import T, Tx

_LAST = "SELECT coalesce(max(rowid), 0) FROM journal"
_SINCE = "SELECT agent_id, kind FROM journal WHERE rowid > ? ORDER BY rowid"


class JournalPoints:
    """A `Database` for one life of a node."""

    def __init__(self, database: SimDatabase) -> None:
        self._database = database
        self._faults = database.faults
        self._durable: int = database.disk.query(_LAST)[0][0]
        self._in_doubt: set[asyncio.Task[Any] | None] = set()
        database.disk.watch(self._committed)

    async def transact(self, fn: Callable[[Tx], T]) -> T:
        try:
            return await self._database.transact(partial(self._visit, fn))
        except CommitUnknown:
            self._in_doubt.add(asyncio.current_task())
            raise

    async def read(self, fn: Callable[[Tx], T]) -> T:
        task = asyncio.current_task()
        if task in self._in_doubt:  # whoever reads after an unknown commit looks whether it is in
            self._in_doubt.discard(task)
            if self._faults.fires(Fault.storage_read_fail, "journal.lookup"):
                raise StorageError("The database failed: disk I/O error")
        return await self._database.read(fn)

    def when_in_doubt(self, tell: Callable[[], None]) -> None:
        self._database.when_in_doubt(tell)

    async def close(self) -> None:
        await self._database.close()

    def _visit(self, fn: Callable[[Tx], T], tx: Tx) -> T:
        raw = driver_connection(tx)
        before = raw.execute(_LAST).fetchone()[0]
        result = fn(tx)
        for _, kind in raw.execute(_SINCE, (before,)).fetchall():
            self._meet(raw, f"journal.{kind}")
        return result

    def _meet(self, raw: sqlite3.Connection, place: str) -> None:
        if self._faults.fires(Fault.crash_before_write, place):
            raise PowerCut
        if self._faults.fires(Fault.storage_write_fail, place):
            raise sqlite_error("disk I/O error", sqlite3.SQLITE_IOERR)
        together = {agent_id for agent_id, _ in raw.execute(_SINCE, (self._durable,)).fetchall()}
        in_group = len(together) > 1 and self._faults.fires(Fault.disk_full, "journal.group")
        if in_group or self._faults.fires(Fault.disk_full, place):
            raw.rollback()  # as SQLite itself does
            raise sqlite_error("database or disk is full", sqlite3.SQLITE_FULL)

    def _committed(self, disk: Disk) -> None:
        if not self._database.node.alive:
            return
        kinds = [kind for _, kind in disk.query(_SINCE, self._durable)]
        self._durable = disk.query(_LAST)[0][0]
        for kind in kinds:
            if self._faults.fires(Fault.crash_after_write, f"journal.{kind}"):
                raise PowerCut
        for kind in kinds:
            if self._faults.fires(Fault.storage_write_fail, f"journal.{kind}.told"):
                raise sqlite_error("disk I/O error", sqlite3.SQLITE_IOERR)
