"""Databases with the newest schema and nothing in them, for tests that are not about how one is made.

They are copies of one that a process makes once: making the schema took most of the start of a server in a test.
"""

import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

from sqlalchemy import Connection

from kelpie.storage import schema
from kelpie.world.sqlite.connections import engine_for, memory_connection, writer_connection
from kelpie.world.sqlite.group_commit import driver_connection


def put_new_database(path: Path) -> None:
    """Puts an empty database where a server will look for one, unless there is one already."""
    if not path.exists():
        path.touch(0o600)
        path.write_bytes(_in_file())


def create_schema(connection: Connection) -> None:
    """Makes the newest schema in a new database in memory."""
    driver_connection(_in_memory()).backup(driver_connection(connection))


@cache
def _in_file() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kelpie.db"
        with closing(writer_connection(engine_for(str(path)), "OFF")) as connection:
            schema.create(connection)
        return path.read_bytes()


@cache
def _in_memory() -> Connection:
    connection = memory_connection()
    schema.create(connection)
    return connection
