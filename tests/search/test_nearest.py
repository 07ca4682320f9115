"""The nearest items are those that an exact scan finds, and a damaged vector is told and never counted, however it is
damaged and in however many items."""

import io
import json
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from sqlalchemy import Connection, select, update

from kelpie.core.errors import StorageError
from kelpie.observe import logs
from kelpie.search import vector_rows, vector_search
from kelpie.search.tables import search_items, search_vectors
from kelpie.search.text import fulltext
from kelpie.search.vector_search import Nearest

DIMENSIONS, SCOPE, MODEL = 20, "archive-a", "some/model"
RNG = np.random.default_rng(3)


@pytest.fixture
def sink() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", stream)
    yield stream
    logs.configure("warning")


def stored(tx: Connection, count: int) -> dict[int, np.ndarray]:
    """Items with random vectors, by their numbers."""
    rows = RNG.standard_normal((count, DIMENSIONS)).astype("<f4")
    fulltext.index_many(tx, "passage", SCOPE, {f"p{at}": "" for at in range(count)})
    vector_rows.put_many(
        tx, "passage", {f"p{at}": (vector_search.vector(MODEL, row.tobytes()),) for at, row in enumerate(rows)}
    )
    numbers = {row.item_id: row.id for row in tx.execute(select(search_items.c.item_id, search_items.c.id))}
    return {numbers[f"p{at}"]: row / np.linalg.norm(row) for at, row in enumerate(rows)}


def found(tx: Connection, query: np.ndarray, limit: int = 5) -> list[int]:
    asked = vector_search.vector(MODEL, query.astype("<f4").tobytes())
    return [item for item, _ in Nearest().search(tx, "passage", [SCOPE], asked, limit)]


def exact(there: dict[int, np.ndarray], query: np.ndarray, limit: int = 5) -> list[int]:
    return sorted(there, key=lambda item: -float(there[item] @ query))[:limit]


def damage(tx: Connection, item: int, change: bytes | None) -> None:
    """Changes the first bytes of a vector by XOR; without a change, cuts it off."""
    column = search_vectors.c
    before = tx.execute(select(column.vector).where(column.item == item)).scalar_one()
    mask = int.from_bytes((change or b"").ljust(len(before), b"\0"), "little")
    after = (int.from_bytes(before, "little") ^ mask).to_bytes(len(before), "little") if change else before[:-4]
    tx.execute(update(search_vectors).where(column.item == item).values(vector=after))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 200, 201, 1900])
def test_the_nearest_are_those_of_an_exact_scan(tx: Connection, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    there = stored(tx, count) if count else {}
    monkeypatch.setattr(
        vector_search, "BY_NUMBERS_PER_RESULT", 200
    )  # signs of 20 numbers say little: more are compared
    for _ in range(10):
        query = RNG.standard_normal(DIMENSIONS)
        assert found(tx, query) == exact(there, query)


@pytest.mark.parametrize("others", [DIMENSIONS - 1, DIMENSIONS * 20])
@pytest.mark.parametrize("count", [3, 300])
def test_a_model_that_gives_other_vectors_than_before_is_told(tx: Connection, count: int, others: int) -> None:
    stored(tx, count)
    finder, query = Nearest(), vector_search.vector(MODEL, RNG.standard_normal(others).astype("<f4").tobytes())
    for again in range(2):
        with pytest.raises(StorageError, match=f"some/model now returns vectors of {others} numbers"):
            finder.search(tx, "passage", [SCOPE], query, 5)
        fulltext.index(tx, "passage", SCOPE, f"new-{again}", "")  # some are stored already, beside those it gave before
        vector_rows.put_many(tx, "passage", {f"new-{again}": (query,)})


CHANGES = [b"\x01", b"\0\0\0\x80", struct.pack("<f", float("inf")), b"\xff" * 80, None]


@pytest.mark.parametrize("count", [8, 300])
@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_vector_is_told_and_never_counted(
    tx: Connection, count: int, change: bytes | None, sink: io.StringIO
) -> None:
    there = stored(tx, count)
    query = RNG.standard_normal(DIMENSIONS)
    for damaged in range(4):
        rotten = exact(there, query, 1)[0]  # the one that would be found first
        damage(tx, rotten, change)  # all alike, so that what is summed up over an even number may be what it was
        del there[rotten]
        assert found(tx, query, 7) == exact(there, query, 7)
        told = sink.getvalue().splitlines()
        assert damaged or len([line for line in told if json.loads(line)["code"] == "vector_damaged"]) == 1


def test_of_equals_the_older_is_first(tx: Connection) -> None:
    row = vector_search.vector(MODEL, np.ones(DIMENSIONS, "<f4").tobytes())
    fulltext.index_many(tx, "passage", SCOPE, {f"p{at}": "" for at in range(9)})
    vector_rows.put_many(tx, "passage", {f"p{at}": (row,) for at in range(9)})
    assert found(tx, np.ones(DIMENSIONS)) == [1, 2, 3, 4, 5]


def test_vectors_that_come_late_beside_newer_ones_are_found(tx: Connection) -> None:
    """The finder knows the signs of what it has searched, and reads on behind them."""
    rows = RNG.standard_normal((302, DIMENSIONS)).astype("<f4")
    vectors = [vector_search.vector(MODEL, row.tobytes()) for row in rows]
    finder = Nearest()

    def nearest(place: int) -> int:
        return finder.search(tx, "passage", [SCOPE], vectors[place], 1)[0][0]

    fulltext.index_many(tx, "passage", SCOPE, {f"p{at}": "" for at in range(301)})
    vector_rows.put_many(tx, "passage", {f"p{at}": (vectors[at],) for at in range(1, 301)})
    numbers = [nearest(at) for at in (1, 300)]
    fulltext.index(tx, "passage", SCOPE, "p301", "")
    vector_rows.put_many(tx, "passage", {"p0": (vectors[0],), "p301": (vectors[301],)})
    assert [nearest(at) for at in (0, 1, 300, 301)] == [numbers[0] - 1, *numbers, numbers[1] + 1]
