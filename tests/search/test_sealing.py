"""Loose items become segments and segments larger ones, and nobody who searches can tell."""

import random
from typing import Any

import pytest
from sqlalchemy import Connection, text

from kelpie.search.item_lookup import ITEM_ID, Only
from kelpie.search.text import fulltext, segment_merge, segment_queue
from kelpie.search.text.bm25 import TextIndexCache
from kelpie.search.text.fulltext import Match
from kelpie.storage.integrity.search_index_checks import wrongs
from kelpie.world.database import MEMORY
from tests.search.reference import Reference

MINE, THEIRS = "archive-mine", "archive-theirs"
WORDS = [
    "the", "fox", "dog", "harbour", "engine", "violin", "lamp", "ladder", "boats", "boat", "letters", "map", "clock",
    "umbrella", "telescope",
]  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few items go through everything that many do."""
    monkeypatch.setattr(segment_queue, "LOOSE_MAX", 4)
    monkeypatch.setattr(segment_queue, "LOOKS", 1)
    monkeypatch.setattr(segment_merge, "SEALED_MAX", 6)
    monkeypatch.setattr(segment_merge, "TIERS", (8, 20, 40))
    monkeypatch.setattr(segment_merge, "TOGETHER", (2, 2, 2))


def seal_all(tx: Connection, kind: str, scope: str) -> None:
    while segment_merge.seal(tx, kind, scope):
        pass


def tidy(tx: Connection) -> None:
    """What upkeep does."""
    while (found := segment_queue.next_scope(tx)) is not None:
        seal_all(tx, *found)
        while (merged := segment_merge.merge(tx, *found)) is not None:
            segment_merge.replace(tx, merged)
        segment_queue.done(tx, *found)


def rows(tx: Connection, table: str) -> int:
    return tx.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()


def broken(tx: Connection) -> dict[str, list[Any]]:
    """What is wrong with the index itself; the items here belong to nothing."""
    found = wrongs(lambda statement: [tuple(row) for row in tx.exec_driver_sql(statement)])
    return {what: items for what, items in found.items() if "without its passage" not in what}


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_done_the_index_finds_what_a_plain_look_at_all_texts_finds(
    tx: Connection, small: None, seed: int
) -> None:
    rng, plain = random.Random(seed), {MINE: Reference(), THEIRS: Reference()}
    number = 0
    for _ in range(120):
        scope = rng.choice((MINE, MINE, THEIRS))
        known = plain[scope]
        act = rng.random()
        if act < 0.5:
            made = {
                f"p{number + n}": " ".join(rng.choices(WORDS, k=rng.randint(0, 9)))
                for n in range(rng.choice((1, 1, 3, 9)))
            }
            number += len(made)
            fulltext.index_many(tx, "passage", scope, made)
            known.texts |= made
        elif act < 0.7 and known.texts:
            gone = rng.sample(sorted(known.texts), rng.randint(1, min(6, len(known.texts))))
            fulltext.remove_many(tx, "passage", gone)
            for item in gone:
                del known.texts[item]
        elif act < 0.8 and known.texts:
            item = rng.choice(sorted(known.texts))
            known.texts[item] = known.texts.pop(item) if rng.random() < 0.3 else " ".join(rng.choices(WORDS, k=4))
            fulltext.index(tx, "passage", scope, item, known.texts[item])
        else:
            tidy(tx)
        query = " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))
        found = {each.item_id: each.whole for each in fulltext.search(tx, "passage", scope, query, 1000)}
        assert found == known.holding(query), query
    assert broken(tx) == {}
    tidy(tx)
    assert broken(tx) == {} and rows(tx, "search_segments") > 0


def test_scores_are_the_same_loose_sealed_and_merged(tx: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    texts = {f"p{n}": " ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for n in range(200)}
    fulltext.index_many(tx, "passage", MINE, texts)
    fulltext.index(tx, "passage", THEIRS, "other", "fox " * 300)
    queries = ("fox harbour", "the boat letter", "umbrella", "clock clock map dog lamp")

    def answers() -> list[list[Match]]:
        found = [fulltext.search(tx, "passage", MINE, query, 50) for query in queries]
        return [[Match(each.item_id, round(each.score, 4), each.whole) for each in answer] for answer in found]

    loose = answers()
    assert loose == [Reference(texts).ranked(query, 50) for query in queries]
    monkeypatch.setattr(segment_merge, "SEALED_MAX", 25)
    seal_all(tx, "passage", MINE)
    assert rows(tx, "search_segments") == 8
    assert answers() == loose
    merged = segment_merge.merge(tx, "passage", MINE)
    assert merged is not None
    segment_merge.replace(tx, merged)
    assert rows(tx, "search_segments") == 1
    assert answers() == loose
    assert segment_merge.merge(tx, "passage", MINE) is None


def test_what_a_scope_holds_does_not_change_anothers_scores(tx: Connection) -> None:
    fulltext.index_many(tx, "passage", MINE, {"a": "fox and dog", "b": "a dog"})
    alone = fulltext.search(tx, "passage", MINE, "fox dog", 10)
    fulltext.index_many(tx, "passage", THEIRS, {f"t{n}": "fox fox dog" for n in range(600)})
    assert fulltext.search(tx, "passage", MINE, "fox dog", 10) == alone


def test_many_at_once_are_put_in_order_at_once_and_a_long_tail_is_noted(tx: Connection) -> None:
    fulltext.index_many(tx, "passage", MINE, {f"p{n}": f"number {n}" for n in range(segment_queue.LOOSE_MAX + 1)})
    assert rows(tx, "search_segments") == 1
    for n in range(2 * segment_queue.LOOSE_MAX):
        fulltext.index(tx, "message", THEIRS, f"m{n}", f"number {n}")
    assert rows(tx, "search_segments") == 1, "who writes one does not wait for it"
    tidy(tx)
    assert rows(tx, "search_segments") == 2 and segment_queue.next_scope(tx) is None
    assert [each.item_id for each in fulltext.search(tx, "message", THEIRS, "number 77", 1)] == ["m77"]


def test_a_segment_of_which_most_is_gone_is_made_anew_and_an_empty_one_dropped(tx: Connection) -> None:
    count = segment_queue.LOOSE_MAX + 1
    fulltext.index_many(tx, "passage", MINE, {f"p{n}": f"number {n}" for n in range(count)})
    tidy(tx)
    fulltext.remove_many(tx, "passage", [f"p{n}" for n in range(count - 3)])
    tidy(tx)
    assert tx.execute(text("SELECT size, gone FROM search_segments")).all() == [(3, 0)]
    assert len(fulltext.search(tx, "passage", MINE, "number", 10)) == 3
    fulltext.remove_many(tx, "passage", [f"p{n}" for n in range(count - 3, count)])
    tidy(tx)
    assert rows(tx, "search_segments") == rows(tx, "search_postings") == 0


def test_a_merge_that_comes_too_late_changes_nothing(tx: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_merge, "SEALED_MAX", 50)
    fulltext.index_many(tx, "passage", MINE, {f"p{n}": f"number {n}" for n in range(400)})
    seal_all(tx, "passage", MINE)
    merged = segment_merge.merge(tx, "passage", MINE)
    assert merged is not None
    fulltext.remove_many(tx, "passage", [f"p{n}" for n in range(10)])
    fulltext.remove_scope(tx, "passage", MINE)
    segment_merge.replace(tx, merged)
    assert rows(tx, "search_segments") == rows(tx, "search_postings") == rows(tx, "search_items") == 0


def test_what_is_removed_while_segments_are_merged_is_not_found_and_is_counted(
    tx: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_merge, "SEALED_MAX", 50)
    fulltext.index_many(tx, "passage", MINE, {f"p{n}": f"number {n}" for n in range(400)})
    seal_all(tx, "passage", MINE)
    merged = segment_merge.merge(tx, "passage", MINE)
    assert merged is not None
    fulltext.remove_many(tx, "passage", ["p7", "p8"])
    segment_merge.replace(tx, merged)
    assert tx.execute(text("SELECT size, gone FROM search_segments")).all() == [(400, 2)]
    found = {each.item_id for each in fulltext.search(tx, "passage", MINE, "number", 1000)}
    assert found == {f"p{n}" for n in range(400)} - {"p7", "p8"}


def test_conditions_come_before_the_cut(tx: Connection) -> None:
    fulltext.index_many(tx, "passage", MINE, {f"p{n:03}": "a fox" for n in range(900)})
    last = Only(ITEM_ID.in_(["p000", "p450", "p899"]))
    assert [each.item_id for each in fulltext.search(tx, "passage", MINE, "fox", 2, only=last)] == ["p000", "p450"]
    assert [each.item_id for each in fulltext.search(tx, "passage", MINE, "fox", 2, 2, last)] == ["p899"]


DAMAGED = {
    "loose words": ("search_items", "words", "loose"),
    "postings": ("search_postings", "postings", "1"),
    "members": ("search_segments", "members", "1"),
}


@pytest.mark.parametrize("where", DAMAGED, ids=lambda where: where)
def test_what_is_damaged_is_left_out_told_and_never_taken_for_true(
    tx: Connection, where: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, (table, column, which) = random.Random(where), DAMAGED[where]
    tx.execution_options(**{MEMORY: {TextIndexCache: TextIndexCache(0, 0)}})
    texts = {f"p{n}": " ".join(rng.choices(WORDS, k=5)) for n in range(300)}
    fulltext.index_many(tx, "passage", MINE, texts)
    fulltext.index(tx, "passage", MINE, "loose", "fox harbour")
    texts["loose"] = "fox harbour"
    true = Reference(texts).holding("fox harbour")
    key, before = tx.execute(text(f"SELECT rowid, {column} FROM {table} WHERE {which} ORDER BY rowid")).first() or (
        0,
        b"",
    )
    for _ in range(30):
        at = rng.randrange(len(before))
        rotten = before[:at] + bytes([before[at] ^ 1 << rng.randrange(8)]) + before[at + 1 :]
        tx.execute(text(f"UPDATE {table} SET {column} = :new WHERE rowid = :key"), {"new": rotten, "key": key})
        found = {each.item_id for each in fulltext.search(tx, "passage", MINE, "fox harbour", 1000)}
        assert found <= true.keys()
        seal_all(tx, "passage", MINE) if where != "loose words" else None
        assert segment_merge.merge(tx, "passage", MINE) is None
        assert "a part of the text index that is not as it was written" in broken(tx)
    tx.execute(text(f"UPDATE {table} SET {column} = :new WHERE rowid = :key"), {"new": before, "key": key})
    assert {each.item_id for each in fulltext.search(tx, "passage", MINE, "fox harbour", 1000)} == true.keys()
