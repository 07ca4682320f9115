"""SqliteDatabase keeps the contract of the Database port, on a real file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kelpie.world.sqlite.database import SqliteDatabase
from tests.contract.database import CONTRACT, Clause


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    opened = SqliteDatabase.open(tmp_path / "contract.db")
    yield opened
    await opened.close()


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
async def test_contract(clause: Clause, database: SqliteDatabase) -> None:
    await clause(database)
