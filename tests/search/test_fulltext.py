"""Full-text search: finds what was indexed, in the right order, in its own scope only, whatever is typed."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from kelpie.search.text import bm25, fulltext, tokenizer
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

MINE, THEIRS = "agent-mine", "agent-theirs"
TEXTS = {
    "m1": "The quick brown fox jumps over the lazy dog",
    "m2": "A fox was seen; the fox ran, and the fox hid",
    "m3": "Dogs are loyal",
    "m4": "Le café est fermé, naïve Übung",
    "m5": "C++ and foo_bar/baz-qux: it's 100% real",
}


@pytest.fixture
def tx() -> Iterator[Connection]:
    connection = _filled()
    yield connection
    connection.close()


def _filled() -> Connection:
    connection = memory_connection()
    create_schema(connection)
    for item_id, said in TEXTS.items():
        fulltext.index(connection, "message", MINE, item_id, said)
    fulltext.index(connection, "message", THEIRS, "t1", "fox fox fox secret agent mine")
    fulltext.index(connection, "passage", MINE, "p1", "fox in a passage")
    return connection


def found(tx: Connection, query: str, limit: int = 10, offset: int = 0) -> list[str]:
    return [match.item_id for match in fulltext.search(tx, "message", MINE, query, limit, offset)]


def test_words_are_found_in_every_form(tx: Connection) -> None:
    assert found(tx, "FOX") == ["m2", "m1"]
    assert found(tx, "dog") == ["m3", "m1"]
    assert found(tx, "jumping") == ["m1"]
    assert found(tx, "cafe ubung") == ["m4"]
    assert found(tx, "absent") == []


def test_those_with_every_word_come_first(tx: Connection) -> None:
    assert found(tx, "fox dog")[0] == "m1"
    assert set(found(tx, "fox dog")) == {"m1", "m2", "m3"}
    assert found(tx, "foo_bar baz qux") == ["m5"]


def test_every_word_counts_more_than_a_better_score(tx: Connection) -> None:
    for number in range(20):
        fulltext.index(tx, "message", THEIRS, f"pear{number}", "pear")
    fulltext.index(tx, "message", MINE, "one", "apple apple apple")
    fulltext.index(tx, "message", MINE, "both", "apple and pear " + "among many other words " * 30)
    first, second = fulltext.search(tx, "message", MINE, "apple pear", 10)
    assert (first.item_id, second.item_id) == ("both", "one")
    assert (first.whole, second.whole) == (True, False)
    assert first.score < second.score


def test_the_better_score_comes_first(tx: Connection) -> None:
    first, second = fulltext.search(tx, "message", MINE, "fox", 10)
    assert (first.item_id, second.item_id) == ("m2", "m1")
    assert first.score > second.score


def test_pages_follow_one_another(tx: Connection) -> None:
    whole = found(tx, "fox dog cafe real")
    assert len(whole) == 5
    assert [found(tx, "fox dog cafe real", 2, offset) for offset in (0, 2, 4, 6)] == [
        whole[:2],
        whole[2:4],
        whole[4:],
        [],
    ]


def test_a_scope_and_a_kind_see_only_their_own(tx: Connection) -> None:
    assert found(tx, "secret") == []
    assert found(tx, THEIRS) == []
    assert fulltext.search(tx, "message", THEIRS, "fox", 10)[0].item_id == "t1"
    assert [match.item_id for match in fulltext.search(tx, "passage", MINE, "fox", 10)] == ["p1"]
    assert fulltext.search(tx, "passage", THEIRS, "fox", 10) == []


def test_indexing_again_replaces(tx: Connection) -> None:
    fulltext.index(tx, "message", MINE, "m1", "entirely different")
    assert found(tx, "quick") == []
    assert found(tx, "different") == ["m1"]
    fulltext.index(tx, "message", THEIRS, "m1", "entirely different")
    assert found(tx, "different") == []


def test_what_was_removed_is_gone_with_its_text(tx: Connection) -> None:
    fulltext.remove(tx, "message", "m2")
    fulltext.remove(tx, "message", "never-there")
    assert found(tx, "fox") == ["m1"]
    fulltext.remove_scope(tx, "message", MINE)
    assert found(tx, "fox dog cafe real") == []
    assert fulltext.search(tx, "message", THEIRS, "fox", 10)
    assert fulltext.search(tx, "passage", MINE, "fox", 10)
    kept = tx.execute(text("SELECT words FROM search_items ORDER BY id")).scalars().all()
    assert kept == [tokenizer.packed("fox fox fox secret agent mine"), tokenizer.packed("fox in a passage")]


HOSTILE = [
    '"', '""', "'", "*", "fox*", "fox OR", "AND", "NOT fox", "NEAR(fox dog, 2)", "text:fox", "^fox", "(fox", "fox)",
    "fox; DROP TABLE search_items", "-fox", "+fox", "{fox}", "\\", "%", "_", "\x00", "fox\x00dog", "\ud800", "…", "🙂",
    "rank", "search_text MATCH 'fox'", ":the_scope", "fox " * 5000, "x" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_that_is_typed_breaks_the_syntax(tx: Connection, query: str) -> None:
    expected = {"m1", "m2"} if "fox" in query.lower() and "DROP" not in query else set[str]()
    assert expected <= set(found(tx, query)) <= set(TEXTS)


def test_words_that_the_index_does_not_know_do_not_spoil_the_others(tx: Connection) -> None:
    assert found(tx, "… fox 🙂 &&&") == ["m2", "m1"]


@given(st.text(max_size=60))
def test_any_text_can_be_asked_for_and_stays_in_its_scope(query: str) -> None:
    assert set(found(_SHARED, query)) <= set(TEXTS)


@given(st.text(max_size=60))
def test_any_text_can_be_indexed_and_removed(said: str) -> None:
    fulltext.index(_SHARED, "passage", "scratch", "any", said)
    fulltext.search(_SHARED, "passage", "scratch", said, 5)
    fulltext.remove(_SHARED, "passage", "any")
    assert fulltext.search(_SHARED, "passage", "scratch", said, 5) == []


_SHARED = _filled()


def test_in_a_large_scope_the_rarer_words_decide_and_common_ones_still_find(
    tx: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "ENOUGH", 3)
    monkeypatch.setattr(bm25, "SCORED_MAX", 5)
    fulltext.index_many(tx, "passage", "large", {f"p{n:02}": f"the harbour number {n}" for n in range(30)})
    fulltext.index_many(tx, "passage", "large", {"fox": "a fox", "both": "the fox of the harbour"})
    assert [match.item_id for match in fulltext.search(tx, "passage", "large", "the fox harbour", 2)] == ["both", "fox"]
    found = [match.item_id for match in fulltext.search(tx, "passage", "large", "the fox harbour", 40)]
    assert found[0] == "both" and sorted(found) == sorted(["both", "fox", *(f"p{n:02}" for n in range(30))])
    assert len(fulltext.search(tx, "passage", "large", "harbour unheard-of", 7)) == 7
