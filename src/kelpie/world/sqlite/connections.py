"""Connections to SQLite, set up alike wherever one is opened: the writer's, a reader's, one to a database in memory.

It also copies a database in use. It does not decide what runs on a connection, and in which thread.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, TypeAlias

import orjson
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from kelpie.core.errors import ConfigurationError
from kelpie.world.database import MEMORY, RUN_SQL, ProcessMemory
from kelpie.world.sqlite.group_commit import driver_connection, run_statement

BUSY_TIMEOUT_MS = 5000
LOG_BYTES_MAX = 64 * 1024 * 1024  # size of the write-ahead log after a checkpoint
LOG_PAGES_MAX = 8000  # from here on every commit makes a checkpoint; before, the writer calls `move_log`

Synchronous: TypeAlias = Literal["FULL", "NORMAL", "OFF"]


def memory_connection() -> Connection:
    """A connection to a new database in memory, set up as the writer's is; for the simulator and for unit tests."""
    return writer_connection(engine_for(":memory:"), "OFF")


def copy_database(source: Path, target: Path) -> None:
    """Copies a database that may be in use, by SQLite's backup API. The target appears as a whole or not at all."""
    unfinished = target.with_name(target.name + ".part")
    unfinished.unlink(missing_ok=True)
    try:
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # for its owner only
        with closing(sqlite3.connect(source)) as origin, closing(sqlite3.connect(unfinished)) as copy:
            origin.backup(copy)
            # A copy in WAL mode would need its log beside it to be whole.
            copy.execute("PRAGMA journal_mode=DELETE")
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def engine_for(path: str) -> Engine:
    """Makes connections to a file. The driver never begins a transaction by itself, the commit group does."""

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)

    return create_engine(
        "sqlite://",
        creator=connect,
        poolclass=NullPool,
        json_serializer=_dumps,
        json_deserializer=orjson.loads,
        execution_options={MEMORY: ProcessMemory(), RUN_SQL: run_statement},
    )


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


def writer_connection(engine: Engine, synchronous: Synchronous) -> Connection:
    """The one connection that writes. Raises ConfigurationError where SQLite cannot use its write-ahead log."""
    connection = engine.connect()
    raw = driver_connection(connection)
    raw.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    mode = raw.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode not in ("wal", "memory"):
        raw.close()
        raise ConfigurationError("KELPIE_DATA_DIR", "its file system has no shared memory for SQLite; use a local disk")
    raw.execute(f"PRAGMA synchronous={synchronous}")
    raw.execute(f"PRAGMA journal_size_limit={LOG_BYTES_MAX}")
    raw.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES_MAX}")
    raw.execute("PRAGMA foreign_keys=ON")
    raw.execute("PRAGMA secure_delete=ON")  # what is deleted or encrypted leaves no copy in the file
    return connection


def truncate_log(path: Path) -> None:
    """Moves the whole write-ahead log into the database and empties its file. Raises sqlite3.Error."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def move_log(writer: Connection) -> None:
    """Moves the write-ahead log into the database, as far as no reader needs the older state.

    Raises sqlite3.Error; then all of it is still in the log.
    """
    driver_connection(writer).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def reader_connection(engine: Engine) -> Connection:
    """A connection that cannot write."""
    connection = engine.connect()
    raw = driver_connection(connection)
    raw.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    raw.execute("PRAGMA query_only=ON")
    return connection
