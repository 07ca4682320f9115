"""Ranking by words, vectors, neighbours and dates together: what users may rely on, whatever is stored."""

import itertools
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from kelpie.core.dates.date_mentions import mentions
from kelpie.core.search_hits import Hit, SearchMode
from kelpie.core.time import from_datetime
from kelpie.search import items
from kelpie.search.item_lookup import ITEM_ID, Only
from kelpie.search.items import Item
from kelpie.search.queries import ItemQuery
from kelpie.search.vector_rows import Vector
from kelpie.search.vector_search import Nearest, vector
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

MODEL, DIMENSIONS = "test/model", 32
VOCABULARY = ("fox", "dog", "harbour", "engine", "violin", "lamp", "ladder", "boat", "letter", "map")
MODES: tuple[SearchMode, ...] = ("fts", "vector", "hybrid")
NOW = from_datetime(datetime(2024, 6, 1, tzinfo=UTC))

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

texts = st.lists(
    st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=25, unique=True
)
queries = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=4, unique=True).map(" ".join)


@pytest.fixture(scope="module")
def tx() -> Iterator[Connection]:
    connection = memory_connection()
    create_schema(connection)
    yield connection
    connection.close()


@pytest.fixture
def mine() -> str:
    return scope()


_numbers = itertools.count()


def scope() -> str:
    """A scope that nothing is in yet."""
    return f"archive-{next(_numbers)}"


def meant(text: str) -> Vector:
    """A vector that is near to those of texts with the same words."""
    total = np.zeros(DIMENSIONS)
    for word in text.split():
        total += np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSIONS)
    return vector(MODEL, total.astype("<f4").tobytes())


def put(tx: Connection, scope: str, said: Mapping[str, str], thread: str | None = None) -> None:
    """Stores texts by their ids, each by itself or one after the other in a thread."""
    made = [
        Item(f"{scope} {item_id}", text, (meant(text),), thread, None if thread is None else place)
        for place, (item_id, text) in enumerate(said.items())
    ]
    items.put_many(tx, "passage", scope, made)


def find(tx: Connection, scope: str, wanted: ItemQuery, only: Only | None = None) -> list[Hit]:
    """The hits with the ids as they were given to `put`."""
    asked = ItemQuery(wanted.words, wanted.limit, wanted.mode, {MODEL: meant(wanted.words)})
    near = items.nearest(tx, Nearest(), "passage", {scope: MODEL}, asked, only)
    return plain(scope, items.find(tx, "passage", scope, wanted, only, near))


def plain(scope: str, hits: Sequence[Hit]) -> list[Hit]:
    assert all(hit.id.startswith(f"{scope} ") for hit in hits), "found outside the scope"
    return [replace(hit, id=hit.id.removeprefix(f"{scope} ")) for hit in hits]


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits]


@FEW
@given(said=texts, query=queries, more=st.lists(st.sampled_from(("zebra", "quartz")), min_size=1, max_size=5))
def test_what_does_not_match_never_changes_which_others_are_found(
    tx: Connection, said: list[str], query: str, more: list[str]
) -> None:
    mine = scope()
    put(tx, mine, {f"p{at}": text for at, text in enumerate(said)})
    queries = [ItemQuery(query, len(said) + 1, mode) for mode in MODES]
    before = [set(ids(find(tx, mine, wanted))) for wanted in queries]
    put(tx, mine, {"other": " ".join(more)})
    assert [set(ids(find(tx, mine, wanted))) - {"other"} for wanted in queries] == before


@FEW
@given(said=texts, query=queries, seed=st.integers(0, 100))
def test_the_order_of_storing_does_not_change_the_ranking_of_independent_items(
    tx: Connection, said: list[str], query: str, seed: int
) -> None:
    stored = {f"p{at}": text for at, text in enumerate(said)}
    mixed = list(stored)
    random.Random(seed).shuffle(mixed)
    first, second = scope(), scope()
    put(tx, first, stored)
    put(tx, second, {item_id: stored[item_id] for item_id in mixed})
    for mode in MODES:
        wanted = ItemQuery(query, len(said), mode)
        rankings = [
            sorted((-round(hit.score, 5), hit.id) for hit in find(tx, each, wanted)) for each in (first, second)
        ]
        assert rankings[0] == rankings[1], mode


@FEW
@given(ours=texts, others=texts, query=queries, limit=st.integers(1, 30))
def test_nothing_outside_the_scope_is_ever_found(
    tx: Connection, ours: list[str], others: list[str], query: str, limit: int
) -> None:
    mine, theirs = scope(), scope()
    put(tx, mine, {str(at): text for at, text in enumerate(ours)}, "the same thread")
    put(tx, theirs, {str(at): text for at, text in enumerate(others)}, "the same thread")
    odd = Only(ITEM_ID.in_([f"{mine} {at}" for at in range(1, len(ours), 2)]))
    for mode in MODES:
        found = ids(find(tx, mine, ItemQuery(query, limit, mode)))  # which looks at every scope
        assert len(found) == len(set(found)) <= limit
        assert all(int(each) % 2 for each in ids(find(tx, mine, ItemQuery(query, limit, mode), odd)))


@FEW
@given(said=texts, query=queries)
def test_a_neighbour_only_adds(tx: Connection, said: list[str], query: str) -> None:
    scores: list[dict[str, float]] = []
    for thread in (None, "batch"):
        mine = scope()
        put(tx, mine, {f"p{at}": text for at, text in enumerate(said)}, thread)
        scores.append({hit.id: hit.score for hit in find(tx, mine, ItemQuery(query, len(said)))})
    alone, together = scores
    assert all(together[each] >= score - 1e-9 for each, score in alone.items())


OTHERS = {f"other{at}": f"{VOCABULARY[at % 4 + 5]} lamp map {at}" for at in range(40)}


def test_what_stands_beside_a_match_is_found_and_says_so(tx: Connection, mine: str) -> None:
    put(tx, mine, {"question": "harbour violin", "answer": "seven o'clock"} | OTHERS, "conversation")
    hits = {hit.id: hit for hit in find(tx, mine, ItemQuery("harbour violin", 5))}
    assert next(iter(hits)) == "question" and {"words", "vector"} <= set(hits["question"].matched)
    assert "neighbour" in hits["answer"].matched and "words" not in hits["answer"].matched


def test_the_order_of_storing_makes_no_neighbours(tx: Connection, mine: str) -> None:
    put(tx, mine, {"question": "harbour violin", "answer": "seven o'clock"} | OTHERS)
    assert not any("neighbour" in hit.matched for hit in find(tx, mine, ItemQuery("harbour violin", 50)))


def test_places_count_and_not_the_order_of_storing(tx: Connection, mine: str) -> None:
    for item_id, text, place in (("last", "lamp", 9), ("first", "harbour violin", 2), ("amid", "seven o'clock", 5)):
        items.put_many(tx, "passage", mine, [Item(f"{mine} {item_id}", text, (meant(text),), "file", place)])
    hits = {hit.id: hit for hit in find(tx, mine, ItemQuery("harbour violin", 5))}
    assert "neighbour" in hits["amid"].matched and "neighbour" not in hits["last"].matched


def test_without_vectors_a_result_contains_a_word_and_neighbours_decide_between_them(tx: Connection, mine: str) -> None:
    said = {"a": "the violin", "b": "harbour map", "c": "the violin", "d": "engine"}
    made = [Item(f"{mine} {item_id}", text, (), "batch", place) for place, (item_id, text) in enumerate(said.items())]
    items.put_many(tx, "passage", mine, made)
    hits = plain(mine, items.find(tx, "passage", mine, ItemQuery("violin harbour", 5), None))
    assert set(ids(hits)) == {"a", "b", "c"} and all("vector" not in hit.matched for hit in hits)
    assert ids(hits).index("c") < ids(hits).index("a")  # what comes after a match gains more than what comes before


def dated(tx: Connection, mine: str, query: str, times: Mapping[str, int]) -> list[Hit]:
    when = mentions(query, NOW, ZoneInfo("UTC"))
    wanted = ItemQuery(
        query, 10, mentions=when, times=lambda _, asked: {each: (times[each.split()[1]],) * 2 for each in asked}
    )
    return plain(mine, items.find(tx, "passage", mine, wanted, None))


def at(year: int, month: int, day: int) -> int:
    return from_datetime(datetime(year, month, day, 12, tzinfo=UTC))


def test_a_date_in_the_question_brings_up_what_is_of_that_time(tx: Connection, mine: str) -> None:
    put(tx, mine, {"may": "we repaired the boat", "march": "we repaired the old boat", "far": "a violin"})
    times = {"may": at(2023, 5, 9), "march": at(2023, 3, 9), "far": at(2023, 5, 9)}
    asked = "Which boat was repaired in {}?"
    assert ids(dated(tx, mine, asked.format("May 2023"), times)) == ["may", "march"]
    hits = dated(tx, mine, asked.format("March 2023"), times)
    assert ids(hits) == ["march", "may"] and "date" in hits[0].matched and "date" not in hits[1].matched


def test_a_date_of_which_nothing_is_changes_nothing(tx: Connection, mine: str) -> None:
    put(tx, mine, {"one": "we repaired the boat", "two": "the boat and the other boat", "three": "repaired"})
    times = {"one": at(2023, 5, 9), "two": at(2022, 5, 9), "three": at(2021, 1, 1)}
    undated = plain(mine, items.find(tx, "passage", mine, ItemQuery("repaired boat", 10), None))
    asked = dated(tx, mine, "repaired boat in March 1999", times)
    assert [(hit.id, hit.score) for hit in asked] == [(hit.id, hit.score) for hit in undated]
