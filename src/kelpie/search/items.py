"""Searchable items of any kind: passages, messages, tools, facts. One way to index and one way to find, for all of
them.

An item has a text and may have vectors; row, text index and vectors are written and removed in the caller's
transaction, so they appear and vanish together. A search is by words, by meaning, or by both merged into one ranking;
every condition comes before the cut, and the scope is always a condition in SQL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, select

from kelpie.core.search_hits import Hit
from kelpie.search import hybrid_ranking
from kelpie.search import vector_rows as vectors
from kelpie.search.item_lookup import Lookup, Only
from kelpie.search.queries import NOTHING_NEAR, ItemQuery, LikelyItems, Near, NearestItems, NearItems
from kelpie.search.tables import search_items
from kelpie.search.text import fulltext, segment_queue
from kelpie.search.text.fulltext import Kind
from kelpie.search.vector_rows import Vector

SCOPES_FEW = 500


@dataclass(frozen=True, slots=True)
class Item:
    """An item to index. With a thread and a place in it, the items before and after it are its context."""

    id: str
    text: str
    vectors: tuple[Vector, ...] = ()
    thread: str | None = None
    place: int | None = None


def put_many(tx: Connection, kind: Kind, scope: str, items: Sequence[Item]) -> None:
    """Indexes items by their texts and vectors."""
    places = {item.id: (item.thread, item.place) for item in items if item.thread is not None}
    fulltext.index_many(tx, kind, scope, {item.id: item.text for item in items}, places)
    if given := {item.id: item.vectors for item in items if item.vectors}:
        vectors.put_many(tx, kind, given)


def remove_many(tx: Connection, kind: Kind, item_ids: Sequence[str]) -> None:
    """Removes those of the items that exist from the index."""
    vectors.remove_many(tx, kind, item_ids)
    fulltext.remove_many(tx, kind, item_ids)


def remove_scope(tx: Connection, kind: Kind, scope: str) -> None:
    """Removes every item of the scope from the index."""
    vectors.remove_scope(tx, kind, scope)
    fulltext.remove_scope(tx, kind, scope)


def forget_scope(tx: Connection, kind: Kind, scope: str) -> None:
    """Deletes the records of a scope that has no items any more, because its owner is gone."""
    vectors.forget_scope(tx, kind, scope)
    segment_queue.forget(tx, kind, scope)


def find(
    tx: Connection,
    kind: Kind,
    scope: str | None,
    wanted: ItemQuery,
    only: Only | None,
    near: NearItems = NOTHING_NEAR,
) -> list[Hit]:
    """The best items, best first: by their words, and by meaning as `near` has found them.

    `only` is a SQL condition on the items that may be found; without a scope it is required, and names the scopes. A
    search by both without anything near is by words, neighbours and dates.
    """
    if wanted.mode == "vector":
        found = _found(Lookup(tx, kind, scope, only), near.found[: wanted.limit])
        return [Hit(item, score, None, at, ("vector",)) for at, (item, score) in enumerate(found, 1)]
    lookup = Lookup(tx, kind, scope, only)
    if wanted.mode == "fts":
        matches = fulltext.TextQuery(lookup, wanted.words, wanted.limit).matches()
        return [Hit(match.item_id, match.score, at, None, ("words",)) for at, match in enumerate(matches, 1)]
    return hybrid_ranking.ranked(lookup, wanted, near)


def _found(lookup: Lookup, near: Sequence[Near]) -> list[tuple[str, float]]:
    there = lookup.of([number for number, _ in near])
    return [(there[number][0], score) for number, score in near if number in there]


def nearest(
    tx: Connection,
    finder: NearestItems,
    kind: Kind,
    scopes: Mapping[str, str],
    wanted: ItemQuery,
    only: Only | None,
) -> NearItems:
    """The items of the scopes nearest in meaning; each scope comes with the model its vectors are of.

    `only` is a SQL condition on the items that may be found; without it, all.
    """
    if wanted.mode == "fts":
        return NOTHING_NEAR
    numbers = None if only is None else _numbers(tx, kind, list(scopes), only)
    found: dict[str, LikelyItems] = {}
    for model, query in wanted.meanings.items():
        of_model = [scope for scope, used in scopes.items() if used == model]
        if of_model:
            if wanted.mode == "vector":
                found[model] = LikelyItems(finder.search(tx, kind, of_model, query, wanted.depth, numbers))
            else:
                found[model] = finder.likely(tx, kind, of_model, query, wanted.depth, numbers)
    return NearItems(found, finder, wanted.meanings)


@lru_cache(maxsize=64)
def _matching(condition: ColumnElement[bool], few: bool) -> Select[Any]:
    of_kind = select(search_items.c.id).where(search_items.c.kind == bindparam("the_kind"), condition)
    return of_kind.where(search_items.c.scope.in_(bindparam("scopes", expanding=True))) if few else of_kind


def _numbers(tx: Connection, kind: Kind, scopes: Sequence[str], only: Only) -> list[int]:
    """The items that meet a condition; with a few scopes, only items of those are read."""
    few = len(scopes) <= SCOPES_FEW
    bound = {"the_kind": kind, **only.parameters, **({"scopes": list(scopes)} if few else {})}
    return [row.id for row in tx.execute(_matching(only.condition, few), bound)]
