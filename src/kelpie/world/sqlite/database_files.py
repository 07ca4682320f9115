"""The files of a database: whether they can be opened, and whether they are still the ones that were opened.

SQLite goes on writing to a file that somebody deleted or replaced, and all that is lost when the process ends. A log
that stays beside a replaced database destroys the new one. So the writer checks the files before it acknowledges a
commit, and after a loss it saves a copy of what it has (`rescue`). This module never changes the file of a database.
"""

import os
import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

from kelpie.core.errors import DatabaseDamaged, DatabaseLost, DiskFull

RESCUES_MAX = 100
SPACE_BYTES_MIN = 1024 * 1024
_DATABASE_HEADER, _LOG_HEADER, _FRAME_HEADER, _INDEX_HEADER = 100, 32, 24, 48
_LOG_MAGIC = 0x377F0682  # the last bit says whether checksums are big-endian

Identity = tuple[int, int]


def check_before_open(path: Path) -> None:
    """Raises DatabaseLost when the database is missing but something of it is left, DatabaseDamaged when its file or
    its log is cut off or overwritten. Only what can be seen without reading everything is found."""
    log = _log_of(path)
    if not path.exists():
        rescued = sorted(path.parent.glob(f"{path.name}.rescued*"))
        if rescued:
            raise DatabaseLost(
                f"The database {path} is missing, and {rescued[-1]} holds what the server had when it was lost. Rename"
                f" that file to {path.name} to go on with it, or move it away to start with an empty database."
            )
        if _size(log):
            raise DatabaseLost(
                f"The database {path} is missing, but its log {log.name} is there. Restore {path.name} from a backup,"
                " or move the log away to start with an empty database."
            )
        return
    with path.open("rb") as file:
        _check_database(path, file.read(_DATABASE_HEADER), path.stat().st_size, is_checkpointed=not _size(log))
    if log.exists():
        with log.open("rb") as file:
            _check_log(log, file.read(_LOG_HEADER))


def _check_database(path: Path, header: bytes, size: int, *, is_checkpointed: bool) -> None:
    """While there is a log, the file may be shorter than its header says: a checkpoint that was cut short wrote the
    header before the last pages, and the log still has them."""
    if not size:
        return  # SQLite makes such a file before the first commit
    if not header.startswith(b"SQLite format 3\0"):
        raise DatabaseDamaged(f"{path} is not a SQLite database. {remedy(path)}")
    page: int = struct.unpack_from(">H", header, 16)[0]
    changes, pages = struct.unpack_from(">I", header, 24)[0], struct.unpack_from(">I", header, 28)[0]
    valid_for: int = struct.unpack_from(">I", header, 92)[0]
    expected = pages * (65_536 if page == 1 else page)
    if is_checkpointed and changes == valid_for and size < expected:
        raise DatabaseDamaged(f"{path} is cut off: {expected - size} of {expected} bytes are missing. {remedy(path)}")


def _check_log(log: Path, header: bytes) -> None:
    """A log without a header holds no commit: it is empty, or the power failed before its first sync."""
    if len(header) < _LOG_HEADER or not any(header):
        return
    if struct.unpack_from(">I", header)[0] & ~1 != _LOG_MAGIC:
        raise DatabaseDamaged(
            f"The log {log} is damaged, and the commits in it cannot be read. Restore the database from a backup, or"
            " move the log away to go on with the state before these commits."
        )


def remedy(path: Path) -> str:
    """What an operator can do about a damaged database, with the copies that lie beside it."""
    copies = sorted(each.name for kind in ("backup", "rescued*") for each in path.parent.glob(f"{path.name}.*{kind}"))
    found = f" Beside it: {', '.join(copies)}." if copies else ""
    return (
        f"Stop the server, move {path.name}, {path.name}-wal and {path.name}-shm away and restore {path.name} from a"
        f" backup, or rebuild it with `sqlite3 {path.name} .recover`.{found}"
    )


def without_space(path: Path) -> DiskFull | None:
    """The error of a disk with less space than a few commits take; None when there is enough."""
    free = shutil.disk_usage(path.parent).free
    if free >= SPACE_BYTES_MIN:
        return None
    return DiskFull(f"The disk that holds the database is full: {free} bytes are left. Free some space and try again.")


class DatabaseFiles:
    """The file of an open database and its log. For the writer's thread only."""

    def __init__(self, path: Path) -> None:
        self._path, self._log = path, _log_of(path)
        self._opened = _identity(path)
        self._opened_log = _identity(self._log)
        self._names = str(path), str(self._log)
        self._log_bytes = 0

    def check(self) -> None:
        """Raises DatabaseLost unless both files are those that were opened and the log is as long as it was."""
        if self._opened is None:  # a database in memory, or a path that SQLite reads in its own way
            return
        if (found := _identity(self._names[0])) != self._opened:
            raise DatabaseLost(self._lost(self._path, "deleted" if found is None else "replaced"))
        log = _stat(self._names[1])
        found = _identity_of(log)
        if self._opened_log is None:
            self._opened_log = found
        elif found != self._opened_log:
            raise DatabaseLost(self._lost(self._log, "deleted" if found is None else "replaced"))
        size = 0 if log is None else log.st_size
        if size < self._log_bytes and size < self._log_bytes_used():
            raise DatabaseLost(self._lost(self._log, "cut off"))
        self._log_bytes = size

    def rescue(self, connection: sqlite3.Connection) -> Path:
        """Copies what the connection still sees to a new file beside the database and returns its path.

        The old log then leaves the place where it would be taken for the log of another database. Raises sqlite3.Error
        or OSError; then everything is as before.
        """
        target = next(
            each
            for number in range(1, RESCUES_MAX)
            if not (each := self._path.with_name(f"{self._path.name}.rescued{number}")).exists()
        )
        unfinished = target.with_name(target.name + ".part")
        unfinished.unlink(missing_ok=True)
        try:
            with closing(sqlite3.connect(unfinished)) as copy:
                connection.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
        if self._opened_log is not None and _identity(self._log) == self._opened_log:
            self._log.unlink()
        return target

    def _lost(self, which: Path, what: str) -> str:
        return (
            f"The file {which} was {what} while the server was running, so nothing can be stored. Stop the server and"
            f" restore {self._path.name}: the log of the server names the copy that it saved."
        )

    def _log_bytes_used(self) -> int:
        """The bytes of the log that hold commits, by SQLite's index of it. A checkpoint of another program, as a backup
        tool makes, may shorten the log and says so there."""
        try:
            with self._path.with_name(self._path.name + "-shm").open("rb") as file:
                page, frames = struct.unpack_from("=HI", file.read(_INDEX_HEADER), 14)
        except (FileNotFoundError, struct.error):
            return 0
        return _LOG_HEADER + frames * (_FRAME_HEADER + (65_536 if page == 1 else page)) if frames else 0


def _size(path: Path) -> int:
    found = _stat(path)
    return 0 if found is None else found.st_size


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _stat(path: str | Path) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - several times in every commit: a Path takes much longer
    except FileNotFoundError:
        return None


def _identity_of(file: os.stat_result | None) -> Identity | None:
    return None if file is None else (file.st_dev, file.st_ino)


def _identity(path: str | Path) -> Identity | None:
    return _identity_of(_stat(path))
