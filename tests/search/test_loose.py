"""The words of loose items are held in memory, and nobody who searches can tell: neither when they change nor when
another database is asked."""

import random
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, select, true

from kelpie.search.item_lookup import Only
from kelpie.search.tables import search_items
from kelpie.search.text import fulltext, segment_merge, unsealed_items
from kelpie.search.text.bm25 import TextIndexCache
from kelpie.search.text.unsealed_items import CachedUnsealedItems
from kelpie.world.database import MEMORY
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema
from tests.search.reference import Reference

SCOPES = ("archive-a", "archive-b", "archive-c")
WORDS = ["the", "fox", "dog", "harbour", "engine", "violin", "lamp", "ladder", "boat"]
EVERYWHERE = Only(true(), {}, select(search_items.c.scope).distinct())


def database() -> Connection:
    connection = memory_connection()
    create_schema(connection)
    return connection


@pytest.fixture
def tx() -> Iterator[Connection]:
    connection = database()
    yield connection
    connection.close()


def found(tx: Connection, scope: str | None, query: str) -> dict[str, bool]:
    matches = fulltext.search(tx, "passage", scope, query, 1000, only=EVERYWHERE if scope is None else None)
    return {match.item_id: match.whole for match in matches}


@pytest.mark.parametrize("bytes_max", [0, 2000, unsealed_items.HELD_BYTES_MAX])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_changes_what_is_held_is_what_is_there(
    tx: Connection, seed: int, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx.execution_options(**{MEMORY: {TextIndexCache: TextIndexCache(unsealed_bytes_max=bytes_max)}})
    monkeypatch.setattr(unsealed_items, "AT_ONCE_MAX", 60)  # so that both ways of looking through are gone
    rng, plain = random.Random(seed), {scope: Reference() for scope in SCOPES}
    for step in range(150):
        scope, act = rng.choice(SCOPES), rng.random()
        texts = plain[scope].texts
        if act < 0.5:
            made = {
                f"p{step}-{n}": " ".join(rng.choices(WORDS, k=rng.randint(0, 6))) for n in range(rng.choice((1, 4)))
            }
            fulltext.index_many(tx, "passage", scope, made)
            texts |= made
        elif act < 0.65 and len(texts) > 1:  # two exchange their texts
            one, other = rng.sample(sorted(texts), 2)
            texts[one], texts[other] = texts[other], texts[one]
            fulltext.index_many(tx, "passage", scope, {item: texts[item] for item in (one, other)})
        elif act < 0.8 and texts:  # the last one gives its number to the next that comes
            gone = max(texts, key=lambda item: int(item[1:].split("-")[0])) if rng.random() < 0.5 else min(texts)
            fulltext.remove(tx, "passage", gone)
            del texts[gone]
        elif act < 0.85 and texts:  # one moves to another scope
            item, other = rng.choice(sorted(texts)), rng.choice(SCOPES)
            plain[other].texts[item] = texts.pop(item)
            fulltext.index(tx, "passage", other, item, plain[other].texts[item])
        elif act < 0.9:
            segment_merge.seal(tx, "passage", scope)
        asked, query = rng.choice(SCOPES), " ".join(rng.choices(WORDS, k=rng.randint(1, 3)))
        assert found(tx, asked, query) == plain[asked].holding(query), (step, query)
        together = Reference({item: text for each in plain.values() for item, text in each.texts.items()})
        assert found(tx, None, query) == together.holding(query), (step, query)


def test_only_what_came_since_is_read(tx: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()

    def counted(rows: object, decoded: object = unsealed_items.decoded) -> object:
        read.append(len(rows))  # pyright: ignore[reportArgumentType]
        return decoded(rows)  # pyright: ignore[reportCallIssue]

    monkeypatch.setattr(unsealed_items, "decoded", counted)
    fulltext.index_many(tx, "passage", "a", {f"p{n}": "fox" for n in range(20)})
    for _ in range(3):
        assert len(found(tx, "a", "fox")) == 20
    fulltext.index(tx, "passage", "a", "new", "another fox")
    for _ in range(3):
        assert len(found(tx, "a", "fox")) == 21
    fulltext.remove(tx, "passage", "p3")
    assert len(found(tx, "a", "fox")) == 20
    assert read == [20, 1, 0, 20]


def test_what_was_rolled_back_is_not_found(tx: Connection) -> None:
    fulltext.index(tx, "passage", "a", "kept", "fox")
    assert found(tx, "a", "fox") == {"kept": True}
    tx.exec_driver_sql("SAVEPOINT s")
    fulltext.index(tx, "passage", "a", "undone", "fox")
    assert found(tx, "a", "fox") == {"kept": True, "undone": True}
    tx.exec_driver_sql("ROLLBACK TO s")
    assert found(tx, "a", "fox") == {"kept": True}


def test_two_databases_do_not_mix(tx: Connection) -> None:
    other = database()
    fulltext.index(tx, "passage", "a", "mine", "fox and dog")
    fulltext.index(other, "passage", "a", "theirs", "violin")
    for _ in range(2):
        assert found(tx, "a", "fox violin") == {"mine": False}
        assert found(other, "a", "fox violin") == {"theirs": False}
    other.close()


def test_many_scopes_are_held_within_the_bound(tx: Connection) -> None:
    held = CachedUnsealedItems(5000)
    for n in range(200):
        fulltext.index_many(tx, "passage", f"scope{n}", {f"p{n}-{k}": "fox dog lamp" for k in range(5)})
    every = select(search_items.c.scope).distinct()
    for _ in range(3):
        together = held.of(tx, every, {"the_kind": "passage"})
        assert together is not None and together.members.numbers.size == 1000
        assert sum(each.bytes for each in held._held._held.values()) <= 5000  # pyright: ignore[reportPrivateUsage]
