"""The history of blocks as rows: every version once, without a gap, and not more of them than are kept."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import pytest

from kelpie.core.errors import Conflict, InvalidInput, NotFound
from kelpie.core.ids import BlockId
from kelpie.core.memory.block_history import Author, AuthorKind, Change
from kelpie.core.memory.blocks import Block
from kelpie.storage.blocks import blocks
from kelpie.storage.blocks import history as block_history
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from kelpie.world.sqlite.group_commit import driver_connection
from tests.new_database import create_schema

BLOCK = BlockId("block-00000000-0000-4000-8000-000000000001")
BOB = Author(AuthorKind.user, "user-1")
ANN = Author(AuthorKind.agent, "agent-1", None, "run-1", "step-1", "memory_insert")


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        blocks.insert(connection, (Block(BLOCK, "notes", "one", 5, 5, description="d", tags=("t",)),), BOB)
        yield connection


def write(tx: Tx, value: str, by: Author = BOB, *, kept: int = 100, **fields: object) -> Block:
    after, _, _ = blocks.update(tx, BLOCK, {"value": value, **fields}, Change(by, 9, kept))
    return after


def numbers(tx: Tx, kept: int = 100, before: int | None = None, limit: int = 50) -> list[int]:
    return [each.version for each in block_history.select(tx, blocks.get(tx, BLOCK), kept, before, limit)]


def rows(tx: Tx) -> int:
    return tx.exec_driver_sql("SELECT count(*) FROM block_history").scalar_one()


def test_a_new_block_begins_its_history(tx: Tx) -> None:
    (first,) = block_history.select(tx, blocks.get(tx, BLOCK), 100, None, 50)
    assert (first.version, first.at, first.by, first.chars, first.restores) == (1, 5, BOB, 3, None)
    assert first.fields == {"label": "notes", "limit": 100_000, "description": "d", "tags": ["t"]}
    assert block_history.get(tx, blocks.get(tx, BLOCK), 1, 100).value == "one"


def test_a_change_is_put_down_with_who_made_it_and_how(tx: Tx) -> None:
    write(tx, "two", ANN, label="diary", tags=("b", "a"))
    second = block_history.get(tx, blocks.get(tx, BLOCK), 2, 100)
    assert (second.version, second.at, second.by, second.value) == (2, 9, ANN, "two")
    assert second.fields == {"label": "diary", "tags": ["a", "b"]}


def test_what_changes_nothing_is_no_version(tx: Tx) -> None:
    write(tx, "one", tags=("t",))
    assert numbers(tx) == [1]


def test_what_is_refused_is_no_version(tx: Tx) -> None:
    with pytest.raises(InvalidInput):
        write(tx, "two", nonsense=1)
    with pytest.raises(Conflict, match="version 1, but you expected 4"):
        blocks.update(tx, BLOCK, {"value": "two"}, Change(BOB, 9, 100), expected=4)
    assert numbers(tx) == [1] and blocks.get(tx, BLOCK).value == "one"


def test_an_edit_costs_one_statement_more(tx: Tx) -> None:
    statements: list[str] = []
    driver_connection(tx).set_trace_callback(statements.append)
    for number in range(2, 16):
        statements.clear()
        write(tx, f"v{number}", kept=3)
        made = [text.split()[0] for text, _ in groupby(statements)]  # a statement comes again for each of its triggers
        assert made == ["SELECT", "SELECT", "UPDATE", "INSERT"]


def test_pages_go_from_the_newest_to_the_oldest(tx: Tx) -> None:
    for number in range(2, 8):
        write(tx, f"v{number}")
    assert numbers(tx, limit=3) == [7, 6, 5]
    assert numbers(tx, before=5, limit=3) == [4, 3, 2]
    assert numbers(tx, before=2) == [1]


@pytest.mark.parametrize("kept", [1, 5, 40])
def test_only_so_many_versions_are_kept_and_the_oldest_go_first(tx: Tx, kept: int) -> None:
    for number in range(2, 101):
        write(tx, f"v{number}", kept=kept)
        newest = list(range(number, max(0, number - kept), -1))
        assert numbers(tx, kept, limit=1000) == newest
        assert rows(tx) <= kept + 16
    block = blocks.get(tx, BLOCK)
    assert block_history.get(tx, block, 101 - kept, kept).value == f"v{101 - kept}"
    with pytest.raises(NotFound):
        block_history.get(tx, block, 100 - kept, kept)


def test_fewer_may_be_kept_from_one_day_to_the_next(tx: Tx) -> None:
    for number in range(2, 60):
        write(tx, f"v{number}")
    assert numbers(tx, kept=4) == [59, 58, 57, 56]
    for number in range(60, 65):
        write(tx, f"v{number}", kept=4)
    assert rows(tx) == 4, "the rest went with the next sweep"


def test_a_history_goes_with_its_block(tx: Tx) -> None:
    other = replace(blocks.get(tx, BLOCK), id=BlockId("block-00000000-0000-4000-8000-000000000002"))
    blocks.insert(tx, (other,), BOB)
    write(tx, "two")
    blocks.delete(tx, BLOCK)
    assert rows(tx) == 1
