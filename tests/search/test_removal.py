"""A scope whose owner is gone leaves every index, at once or piece by piece."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text

from kelpie.search import items, scope_removal
from kelpie.search.items import Item, ItemQuery
from kelpie.search.vector_rows import Vector
from kelpie.search.vector_search import vector
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

MINE, THEIRS = "agent-mine", "agent-theirs"
TABLES = ("search_items", "search_vectors", "search_sketches")
MEANT: Vector = vector("a/model", b"\x00\x00\x80\x3f" * 8)


@pytest.fixture
def tx() -> Iterator[Connection]:
    connection = memory_connection()
    create_schema(connection)
    items.put_many(connection, "message", MINE, [Item("m1", "a fox", (MEANT,))])
    items.put_many(connection, "message", THEIRS, [Item("t1", "their fox", (MEANT,))])
    yield connection
    connection.close()


def counts(tx: Connection) -> set[int]:
    return {tx.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() for table in TABLES}


def segments(tx: Connection) -> int:
    tables = ("search_segments", "search_postings", "search_unordered")
    return sum(tx.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() for table in tables)


def test_a_small_scope_is_gone_at_once(tx: Connection) -> None:
    assert counts(tx) == {2}
    scope_removal.discard_scope(tx, "message", MINE)
    assert not scope_removal.needs_cleanup(tx)
    assert counts(tx) == {1}
    assert tx.execute(text("SELECT scope FROM search_scopes")).scalars().all() == [THEIRS]


def test_a_large_scope_is_swept_in_pieces(tx: Connection) -> None:
    number = 10 * scope_removal.ROWS_MAX
    items.put_many(tx, "message", MINE, [Item(f"many-{n}", f"fox number {n}", (MEANT,)) for n in range(number)])
    scope_removal.discard_scope(tx, "message", MINE)
    assert counts(tx) == {number + 2}, "nobody waits for it"
    assert segments(tx) > 4, "so many are put in order at once"
    most, pieces = 3, 0
    while scope_removal.needs_cleanup(tx):
        (before,), rows = counts(tx), segments(tx)
        if before == 1:  # what is left of the scope is its part of the text index
            scope_removal.clean_up(tx, most)
            assert rows - segments(tx) <= most + 1, "and with the last piece the note that it is to be put in order"
        else:
            scope_removal.clean_up(tx)
            assert before - next(iter(counts(tx))) <= scope_removal.ROWS_MAX
        pieces += 1
    assert pieces > 10
    assert counts(tx) == {1}, "those of others stay"
    assert segments(tx) == 0
    scope_removal.clean_up(tx)
    assert [hit.id for hit in items.find(tx, "message", THEIRS, ItemQuery("fox", 10), None)] == ["t1"]
