"""The disk of a machine, which survives a power cut: the committed state of a database, a real SQLite in memory.

Making the schema, and warming up a new engine, cost more than a whole run: a disk is made from the image of another
one, on a connection that an earlier disk has returned.
"""

import sqlite3  # noqa: TID251 - for the image of a disk, which no adapter knows
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Connection

from kelpie.sim.ports.packages import PackageDisk
from kelpie.world.database import MEMORY, ProcessMemory
from kelpie.world.sqlite.connections import memory_connection
from kelpie.world.sqlite.group_commit import (
    FaultPoints,
    Point,
    driver_connection,
    run_read,
    tolerant_text,
    watch_statements,
)

T = TypeVar("T")

Watcher = Callable[["Disk"], None]


class _Statements:
    """Passes the statements of a connection to its current user."""

    user: FaultPoints | None = None

    def before(self, point: Point) -> None:
        if self.user is not None:
            self.user.before(point)

    def after(self, point: Point) -> None:
        if self.user is not None:
            self.user.after(point)


# A connection that is given an image by `deserialize` crashes the process in SQLite 3.40 when it has used json_each
# before: that table goes on pointing at the schema that was thrown away. Copying pages leaves the schema in its place.
@lru_cache(maxsize=8)
def _opened(image: bytes) -> sqlite3.Connection:
    opened = sqlite3.connect(":memory:")
    opened.deserialize(image)
    return opened


@dataclass(slots=True)
class ProcessState:
    """What one process knows of a disk and loses with its power: its caches, and how its connections read texts."""

    memory: ProcessMemory = field(default_factory=dict)
    text_factory: Any = str


_given_back: list[tuple[Connection, _Statements]] = []


class Disk:
    """One database, and the packages and keys beside it. It outlives the nodes that use it, one after the other."""

    def __init__(self, image: bytes | None = None) -> None:
        self.commits = 0
        self.loads: list[tuple[str, float]] = []  # agents and when each had been loaded, for checks
        self.claims: set[tuple[str, int]] = set()  # agents and epochs of all claims on them, for checks
        self.package_disk = PackageDisk()
        self.key_file: tuple[bytes, ...] = ()  # encryption keys
        self.kept_uploads: dict[str, bytes] = {}
        self._watchers: list[Watcher] = []
        if image is not None and _given_back:
            self.connection, self._statements = _given_back.pop()
        else:
            self.connection, self._statements = memory_connection(), _Statements()
            watch_statements(self.connection, self._statements)
        self._raw = driver_connection(self.connection)
        if image is not None:
            _opened(image).backup(self._raw)

    def image(self) -> bytes:
        """The whole committed state."""
        return self._raw.serialize()

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Reads the committed state from outside, past every adapter and fault; for checks."""
        before, self._raw.text_factory = self._raw.text_factory, tolerant_text
        try:
            return self._raw.execute(sql, parameters).fetchall()
        finally:
            self._raw.text_factory = before

    def read(self, fn: Callable[[Connection], T]) -> T:
        """Runs a read of the product on the committed state, as a process that knows nothing; for checks."""
        with self.used_by(ProcessState()) as connection:
            return run_read(connection, fn)

    def refusing_writes(self, fn: Callable[[Connection], T]) -> Callable[[Connection], T]:
        """The function, which fails if it has written something, as it does on the connections on which the server
        reads. A PRAGMA would refuse the write itself, but SQLite prepares every statement anew after it."""

        def reading(connection: Connection) -> T:
            before = self._raw.total_changes
            result = fn(connection)
            if self._raw.total_changes != before:
                raise sqlite3.OperationalError("attempt to write a readonly database")
            return result

        return reading

    @contextmanager
    def used_by(self, process: ProcessState, points: FaultPoints | None = None) -> Iterator[Connection]:
        """The connection with the state of one process; its fault points see every statement meanwhile."""
        self.connection.execution_options(**{MEMORY: process.memory})
        self._raw.text_factory = process.text_factory
        self._statements.user = points
        try:
            yield self.connection
        finally:
            self._statements.user = None
            process.text_factory, self._raw.text_factory = self._raw.text_factory, str

    def watch(self, watcher: Watcher) -> None:
        """Registers a check that reads the disk after every commit."""
        self._watchers.append(watcher)

    def committed(self) -> None:
        """Called by the adapter when a group is durable."""
        self.commits += 1
        for watcher in self._watchers:
            watcher(self)

    def close(self) -> None:
        """Returns the connection; the disk must not be used any more."""
        self.connection.rollback()
        _given_back.append((self.connection, self._statements))


def schema_image(create: Callable[[Connection], None]) -> bytes:
    """The image of a disk on which `create` has made the schema."""
    disk = Disk()
    create(disk.connection)
    disk.connection.commit()
    driver_connection(disk.connection).commit()
    image = disk.image()
    disk.close()
    return image
