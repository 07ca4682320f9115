"""Searchable items of any kind: passages, messages, tools, facts. One way to index and one way to find, for all of
them.

An item has a text and may have vectors; row, text index and vectors are written and removed in the caller's
transaction, so they appear and vanish together. A search is by words, by meaning, or by both merged into one ranking;
every condition comes before the cut, and the scope is always a condition in SQL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Select, bindparam, select

from kelpie.core.search_hits import Hit, SearchMode
from kelpie.search import vector_rows as vectors
from kelpie.search.item_lookup import Lookup, Only
from kelpie.search.ranking import fused
from kelpie.search.tables import search_items
from kelpie.search.text import fulltext, segment_queue
from kelpie.search.text.fulltext import Kind
from kelpie.search.vector_rows import Vector

Near = tuple[int, float]  # the number of an item and its cosine to the query
DEPTH = 4
DEPTH_MIN = 50
SCOPES_FEW = 500


@dataclass(frozen=True, slots=True)
class Item:
    id: str
    text: str
    vectors: tuple[Vector, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemQuery:
    """A search query. `meanings` is the query as a vector of each model; in a scope of another model only its words
    count."""

    words: str
    limit: int
    mode: SearchMode = "hybrid"
    meanings: Mapping[str, Vector] = field(default_factory=dict[str, Vector])

    @property
    def depth(self) -> int:
        """Number of items that each of two rankings gives to the merged one; by meaning alone, a few more than
        requested."""
        return self.limit + self.limit // 2 if self.mode == "vector" else max(DEPTH_MIN, DEPTH * self.limit)


class NearestItems(Protocol):
    """Port to the vector search, implemented by `vector_search.Nearest`. The caller passes it in, because its
    dependencies are heavy."""

    def search(
        self,
        tx: Connection,
        kind: Kind,
        scopes: Sequence[str],
        query: Vector,
        limit: int,
        only: Sequence[int] | None = None,
    ) -> list[Near]: ...


def put_many(tx: Connection, kind: Kind, scope: str, items: Sequence[Item]) -> None:
    """Indexes items by their texts and vectors."""
    fulltext.index_many(tx, kind, scope, {item.id: item.text for item in items})
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
    tx: Connection, kind: Kind, scope: str | None, wanted: ItemQuery, only: Only | None, near: Sequence[Near] = ()
) -> list[Hit]:
    """The best items, best first: by their words, and by meaning as `near` has found them.

    `only` is a SQL condition on the items that may be found; without a scope it is required, and names the scopes.
    Items that contain every word come first, also when they have no vector yet.
    """
    if wanted.mode == "vector":
        found = _found(Lookup(tx, kind, scope, only), near[: wanted.limit])
        return [Hit(item, score, None, at) for at, (item, score) in enumerate(found, 1)]
    lookup = Lookup(tx, kind, scope, only, [number for number, _ in near])
    matches = fulltext.matches(lookup, wanted.words, wanted.depth if near else wanted.limit)
    if not near:
        return [Hit(match.item_id, match.score, at) for at, match in enumerate(matches, 1)]
    by_meaning = _found(lookup, near)
    whole = {match.item_id for match in matches if match.whole}
    words = {match.item_id: place for place, match in enumerate(matches, 1)}
    meaning = {item: place for place, (item, _) in enumerate(by_meaning, 1)}
    both = fused([(match.item_id, match.score) for match in matches], by_meaning)
    ranked = sorted(both, key=lambda pair: pair[0] not in whole)
    return [Hit(item, score, words.get(item), meaning.get(item)) for item, score in ranked[: wanted.limit]]


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
) -> list[Near]:
    """The items of the scopes nearest in meaning, best first; each scope comes with the model its vectors are of.

    `only` is a SQL condition on the items that may be found; without it, all.
    """
    if wanted.mode == "fts":
        return []
    numbers = None if only is None else _numbers(tx, kind, list(scopes), only)
    found: list[Near] = []
    for model, query in wanted.meanings.items():
        of_model = [scope for scope, used in scopes.items() if used == model]
        if of_model:
            found += finder.search(tx, kind, of_model, query, wanted.depth, numbers)
    return sorted(found, key=lambda pair: -pair[1])[: wanted.depth]


@lru_cache(maxsize=64)
def _matching(condition: ColumnElement[bool], few: bool) -> Select[Any]:
    of_kind = select(search_items.c.id).where(search_items.c.kind == bindparam("the_kind"), condition)
    return of_kind.where(search_items.c.scope.in_(bindparam("scopes", expanding=True))) if few else of_kind


def _numbers(tx: Connection, kind: Kind, scopes: Sequence[str], only: Only) -> list[int]:
    """The items that meet a condition; with a few scopes, only items of those are read."""
    few = len(scopes) <= SCOPES_FEW
    bound = {"the_kind": kind, **only.parameters, **({"scopes": list(scopes)} if few else {})}
    return [row.id for row in tx.execute(_matching(only.condition, few), bound)]
