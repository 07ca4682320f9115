"""Full-text search over messages, passages and every other item with a text: indexing, removal and queries.

An item belongs to a scope (an agent's messages, an archive's passages). The scope is a condition in SQL, never a word
in the text, and is checked again for every match. The functions run inside the caller's transaction, so an item and its
index entry appear and vanish together. An item is written with the numbers of its words beside it and is *unsealed*;
many unsealed items are merged into a segment later (`segment_merge`).
"""

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias
from zlib import crc32

from sqlalchemy import Connection, bindparam, delete, false, select

from kelpie.search.item_lookup import Lookup, Only, There
from kelpie.search.tables import search_items
from kelpie.search.text import segment_queue, tokenizer
from kelpie.world.lazy_imports import lazily
from kelpie.world.statements import Prepared

with lazily:
    from kelpie.search.text import bm25 as _bm25  # it needs numpy

Kind: TypeAlias = Literal["message", "passage", "file_passage", "tool", "fact"]

LOOKED_AT, LOOKED_AT_MAX = 20, 8000  # matches that are looked up in one go: more than are wanted, and at most
_NOT_THERE = ("", None)
_CHUNK = 500  # ids per IN list


class Match(NamedTuple):
    item_id: str
    score: float  # BM25: more is better
    whole: bool  # true if it contains every word of the query
    number: int = 0


# --- in and out -----------------------------------------------------------------------------------------------------


def index(tx: Connection, kind: Kind, scope: str, item_id: str, text: str) -> None:
    """Indexes the item by its text, replacing an earlier text."""
    index_many(tx, kind, scope, {item_id: text})


Places = Mapping[str, tuple[str | None, int | None]]  # of items, by their ids: the thread of each, and its place in it
_BY_ITSELF = (None, None)


def index_many(tx: Connection, kind: Kind, scope: str, texts: Mapping[str, str], places: Places | None = None) -> None:
    """Indexes items by their texts, in one statement however many there are. Without a place an item has no
    neighbours."""
    if not texts:
        return
    rows: list[dict[str, Any]] = []
    for item_id, text in texts.items():
        words = tokenizer.packed(text)
        thread, place = (places or {}).get(item_id, _BY_ITSELF)
        row = {"kind": kind, "scope": scope, "item_id": item_id, "loose": True, "words": words}
        rows.append({**row, "checksum": crc32(words), "thread": thread, "place": place})
    _put(tx.dialect.name).run_many(tx, rows)
    segment_queue.grown(tx, kind, scope, texts)


def remove(tx: Connection, kind: Kind, item_id: str) -> None:
    """Removes the item from the index, if it is in it."""
    remove_many(tx, kind, (item_id,))


def remove_many(tx: Connection, kind: Kind, item_ids: Sequence[str]) -> None:
    """Removes those of the items that are in the index."""
    for start in range(0, len(item_ids), _CHUNK):
        wanted = {"the_kind": kind, "ids": list(item_ids[start : start + _CHUNK])}
        gone = tx.execute(_SEALED, wanted).all()
        tx.execute(_DROP_ITEMS, wanted)
        segment_queue.shrunk(tx, kind, [(row.scope, row.id) for row in gone])


def remove_scope(tx: Connection, kind: Kind, scope: str) -> None:
    """Removes every item of the scope from the index."""
    tx.execute(_DROP_SCOPE, {"the_kind": kind, "the_scope": scope})
    segment_queue.forget(tx, kind, scope)


def remove_numbers(tx: Connection, numbers: Sequence[int]) -> None:
    """Removes the items with these numbers from the index, whose scope no search uses any more."""
    tx.execute(_DROP_NUMBERED, {"numbers": list(numbers)})


@cache
def _put(dialect: str) -> Prepared:
    """The statement that writes an item; each dialect has its own, and only the one in use is imported."""
    written = ("kind", "scope", "item_id", "loose", "words", "checksum", "thread", "place")
    put = (
        importlib.import_module(f"sqlalchemy.dialects.{dialect}")
        .insert(search_items)
        .values({name: bindparam(name) for name in written})
    )
    replaced = {name: put.excluded[name] for name in ("scope", "loose", "words", "checksum", "thread", "place")}
    return Prepared(put.on_conflict_do_update(index_elements=["kind", "item_id"], set_=replaced))


_I = search_items.c
_THESE = (_I.kind == bindparam("the_kind")) & _I.item_id.in_(bindparam("ids", expanding=True))
_SEALED = select(_I.scope, _I.id).where(_THESE, _I.loose == false())
_DROP_ITEMS = delete(search_items).where(_THESE)
_DROP_SCOPE = delete(search_items).where(_I.kind == bindparam("the_kind"), _I.scope == bindparam("the_scope"))
_DROP_NUMBERED = delete(search_items).where(_I.id.in_(bindparam("numbers", expanding=True)))


# --- found ----------------------------------------------------------------------------------------------------------


def search(
    tx: Connection,
    kind: Kind,
    scope: str | None,
    query: str,
    limit: int,
    offset: int = 0,
    only: Only | None = None,
) -> list[Match]:
    """The items of the scope that contain a word of the query: those with every word first, then the best score.

    A query without words finds nothing; very common words count only for the score of items with a rarer one, unless
    these find too little. Without a scope, `only` must limit the owners of the items, and name the scopes.
    """
    return TextQuery(Lookup(tx, kind, scope, only), query, offset + limit).matches()[offset:]


_Best = tuple[int, int, float, bool]  # of an item: number, checksum, score, and whether it contains every word


class TextQuery:
    """A query by words, for so many matches at most. What the index says of items is known at once; `matches` checks
    that they exist. An item need not contain the words of `besides`, which are a part of the query."""

    def __init__(self, lookup: Lookup, query: str, most: int, besides: str = "") -> None:
        self._lookup = lookup
        self._most = most
        self._asked = tokenizer.asked(query)
        self._besides = frozenset(tokenizer.numbers(besides)) if besides else frozenset[int]()
        self._parts: Any = None
        self._scored: Any = None
        self._best: list[_Best] = []
        if self._asked:
            self._parts = _bm25.parts(lookup.tx, lookup.scopes, lookup.bound, self._asked)
            self._score(cut=True)

    @property
    def likely(self) -> list[tuple[int, float]]:
        """The numbers of the best items, and how much of the query each contains; also of those that do not exist any
        more or may not be found."""
        return [(number, score / self._scored.ideal) for number, _, score, _ in self._best[: self._most]]

    def matches(self) -> list[Match]:
        """The best items that exist, are in scope, and meet the condition."""
        if self._scored is None:
            return []
        found = self._there()
        if len(found) < self._most and self._scored.is_cut:
            self._score(cut=False)
            found = self._there()
        return found

    def _score(self, *, cut: bool) -> None:
        self._scored = _bm25.scored(self._parts, self._asked, self._most, cut=cut, besides=self._besides)
        self._best = self._scored.best(self._most + LOOKED_AT)

    def shares_of(self, there: Mapping[int, There]) -> dict[int, float]:
        """How much of the query each of these items contains, of those that contain a word of it: 1 is an item of mean
        length with every word once."""
        if self._scored is None:
            return {}
        found = self._scored.of({number: checksum for number, (_, checksum) in there.items()})
        return {number: score / self._scored.ideal for number, score in found.items()}

    def _there(self) -> list[Match]:
        found: dict[int, Match] = {}
        looked, best = 0, self._best
        while best:
            for start in range(0, len(best), LOOKED_AT_MAX):
                piece = best[start : start + LOOKED_AT_MAX]
                there = self._lookup.of([number for number, *_ in piece])
                for number, checksum, score, whole in piece:
                    item, written = there.get(number, _NOT_THERE)
                    if written == checksum and number not in found:
                        found[number] = Match(item, score, whole, number)
                if len(found) >= self._most:
                    return list(found.values())[: self._most]
            looked += len(best)
            best = self._scored.best(self._scored.size)[looked:] if looked < self._scored.size else []
        return list(found.values())
