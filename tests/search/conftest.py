"""A database in memory with the whole schema, for tests that fill it themselves."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection

from kelpie.storage import schema
from kelpie.world.sqlite.connections import memory_connection


@pytest.fixture
def tx() -> Iterator[Connection]:
    connection = memory_connection()
    schema.create(connection)
    yield connection
    connection.close()
