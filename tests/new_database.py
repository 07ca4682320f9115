"""Databases with the newest schema and nothing in them, for tests that are not about how one is made.

They are copies of one that a process makes once: making the schema took most of the start of a server in a test. For
the same reason their connections share the statements that SQLAlchemy has compiled, and do not wait for the disk: a
test that is about either opens a database by itself.
"""

import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.util import LRUCache

from kelpie.core.ids import DEFAULT_ORGANIZATION
from kelpie.storage import schema
from kelpie.storage.accounts import accounts
from kelpie.tools.registry.writes import ensure_builtins
from kelpie.world.clock import SystemClock
from kelpie.world.sqlite.connections import engine_for, memory_connection, reader_connection, writer_connection
from kelpie.world.sqlite.database import WAITING_MAX, SqliteDatabase
from kelpie.world.sqlite.group_commit import driver_connection

READERS = 4
STATEMENTS_MAX = 5000

_compiled = LRUCache(STATEMENTS_MAX)


def open_new_database(path: Path, *, started: bool = False) -> SqliteDatabase:
    """Opens an empty database, or the one that is there already.

    With `started` it has what the first start of a server writes, as of now: the default organization and user, and the
    built-in tools.
    """
    if path.exists():
        return SqliteDatabase.open(path, synchronous="OFF")
    path.touch(0o600)
    path.write_bytes(_in_file(started))
    engine = engine_for(str(path))
    # A statement is compiled for a dialect, of which every engine has one of its own, and all are alike.
    engine.dialect = _known_engine().dialect
    engine.update_execution_options(compiled_cache=_compiled)
    writer = writer_connection(engine, "OFF")
    return SqliteDatabase(path, writer, [reader_connection(engine) for _ in range(READERS)], WAITING_MAX)


def create_schema(connection: Connection) -> None:
    """Makes the newest schema in a new database in memory."""
    driver_connection(_in_memory()).backup(driver_connection(connection))


@cache
def _in_file(started: bool) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kelpie.db"
        with closing(writer_connection(engine_for(str(path)), "OFF")) as connection:
            schema.create(connection)
            if started:
                now = SystemClock().now()
                accounts.ensure_defaults(connection, now)
                ensure_builtins(connection, DEFAULT_ORGANIZATION, now)
                connection.commit()
        return path.read_bytes()


@cache
def _in_memory() -> Connection:
    connection = memory_connection()
    schema.create(connection)
    return connection


@cache
def _known_engine() -> Engine:
    """An engine that has connected once: its dialect knows the version of SQLite."""
    return memory_connection().engine
