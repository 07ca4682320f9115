"""What survives a power cut: the committed state of a database, a real SQLite in memory.

Making the schema costs more than a whole run, so a disk can be made from the image of another one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

from kelpie.world.commit_group import FaultPoints, Point, driver_connection, watch_statements
from kelpie.world.sqlite import memory_connection

Watcher = Callable[["Disk"], None]


class Disk:
    """One database. It outlives the nodes that use it, one after the other."""

    def __init__(self, image: bytes | None = None) -> None:
        self.connection: Connection = memory_connection()
        self._raw = driver_connection(self.connection)
        self._watchers: list[Watcher] = []
        self._user: FaultPoints | None = None
        self.commits = 0
        watch_statements(self.connection.engine, self)
        if image is not None:
            self._raw.deserialize(image)

    def image(self) -> bytes:
        """Everything that is committed."""
        return self._raw.serialize()

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Looks at the committed state from outside, past every adapter and fault; for checkers."""
        return self._raw.execute(sql, parameters).fetchall()

    @contextmanager
    def used_by(self, points: FaultPoints) -> Iterator[None]:
        """Lets the fault points of one node see every statement meanwhile."""
        self._user = points
        try:
            yield
        finally:
            self._user = None

    def before(self, point: Point) -> None:
        if self._user is not None:
            self._user.before(point)

    def after(self, point: Point) -> None:
        if self._user is not None:
            self._user.after(point)

    def watch(self, watcher: Watcher) -> None:
        """Registers a checker that looks at the disk after every commit."""
        self._watchers.append(watcher)

    def committed(self) -> None:
        """Told by the adapter that a group is durable."""
        self.commits += 1
        for watcher in self._watchers:
            watcher(self)

    def close(self) -> None:
        self.connection.close()


def schema_image(create: Callable[[Connection], None]) -> bytes:
    """The image of a disk on which `create` has made the schema."""
    disk = Disk()
    create(disk.connection)
    disk.connection.commit()
    image = disk.image()
    disk.close()
    return image
