"""Full-text search over messages, passages and every other item with a text: indexing, removal and queries.

An item belongs to a scope (an agent's messages, an archive's passages). The scope is a condition in SQL, never a word
in the text, and is checked again for every match. The functions run inside the caller's transaction, so an item and its
index entry appear and vanish together. An item is written with the numbers of its words beside it and is *unsealed*;
many unsealed items are merged into a segment later (`segment_merge`).
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias
from zlib import crc32

from sqlalchemy import Connection, Executable, bindparam, delete, false, select
from sqlalchemy.dialects import postgresql, sqlite

from kelpie.search.item_lookup import Lookup, Only
from kelpie.search.tables import search_items
from kelpie.search.text import segment_queue, tokenizer

Kind: TypeAlias = Literal["message", "passage", "tool", "fact"]

LOOKED_AT, LOOKED_AT_MAX = 20, 8000  # matches that are looked up in one go: more than are wanted, and at most
_NOT_THERE = ("", None)
_CHUNK = 500  # ids per IN list


class Match(NamedTuple):
    item_id: str
    score: float  # BM25: more is better
    whole: bool  # true if it contains every word of the query


# --- in and out -----------------------------------------------------------------------------------------------------


def index(tx: Connection, kind: Kind, scope: str, item_id: str, text: str) -> None:
    """Indexes the item by its text, replacing an earlier text."""
    index_many(tx, kind, scope, {item_id: text})


def index_many(tx: Connection, kind: Kind, scope: str, texts: Mapping[str, str]) -> None:
    """Indexes items by their texts, in one statement however many there are."""
    if not texts:
        return
    packed = {item_id: tokenizer.packed(text) for item_id, text in texts.items()}
    tx.execute(
        _PUT[tx.dialect.name],
        [
            {"kind": kind, "scope": scope, "item_id": item_id, "loose": True, "words": each, "checksum": crc32(each)}
            for item_id, each in packed.items()
        ],
    )
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


def _put(of_dialect: Any) -> Executable:
    put = of_dialect(search_items)
    replaced = {name: put.excluded[name] for name in ("scope", "loose", "words", "checksum")}
    return put.on_conflict_do_update(index_elements=["kind", "item_id"], set_=replaced)


_I = search_items.c
_PUT = {"sqlite": _put(sqlite.insert), "postgresql": _put(postgresql.insert)}
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
    return matches(Lookup(tx, kind, scope, only), query, limit, offset)


def matches(lookup: Lookup, query: str, limit: int, offset: int = 0) -> list[Match]:
    """The same, for a search that shares its item lookup."""
    asked = tokenizer.asked(query)
    if not asked:
        return []
    bm25 = importlib.import_module("kelpie.search.text.bm25")  # it needs numpy
    parts = bm25.parts(lookup.tx, lookup.scopes, lookup.bound, asked)
    most, found = offset + limit, list[Match]()
    for cut in (True, False):
        scored = bm25.scored(parts, asked, most, cut=cut)
        found = _there(lookup, scored, most)
        if len(found) >= most or not scored.is_cut:
            break
    return found[offset:most]


def _there(lookup: Lookup, scored: Any, most: int) -> list[Match]:
    """The best of the scored items that exist, are in scope, and meet the condition."""
    found: dict[int, Match] = {}
    looked, more = 0, most + LOOKED_AT
    while len(found) < most and looked < scored.size:
        best = scored.best(looked + more)[looked:]
        for start in range(0, len(best), LOOKED_AT_MAX):
            piece = best[start : start + LOOKED_AT_MAX]
            there = lookup.of([number for number, *_ in piece])
            for number, checksum, score, whole in piece:
                item, written = there.get(number, _NOT_THERE)
                if written == checksum and number not in found:
                    found[number] = Match(item, score, whole)
            if len(found) >= most:
                break
        looked, more = looked + len(best), scored.size
    return list(found.values())[:most]
