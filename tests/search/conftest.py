"""A database in memory with the whole schema, for tests that fill it themselves."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection

from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema


@pytest.fixture
def tx() -> Iterator[Connection]:
    connection = memory_connection()
    create_schema(connection)
    yield connection
    connection.close()
