"""Search for passages: by words, by meaning, by both, or without any of them by age.

Every search names an archive or an organisation, and that is a condition in SQL, as are tags and dates: passages
outside are neither shown nor ranked.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import orjson
import sqlalchemy as sa

from kelpie.core.ids import ArchiveId, OrganizationId
from kelpie.core.memory.passages import Passage, PassageQuery
from kelpie.core.search_hits import Hit
from kelpie.core.time import Micros
from kelpie.search import items
from kelpie.search.item_lookup import ITEM_ID, Only, listed
from kelpie.search.queries import NOTHING_NEAR, ItemQuery, NearestItems, NearItems
from kelpie.search.vector_rows import Vector
from kelpie.storage.archives.passages import from_row
from kelpie.storage.tables import archives, passage_tags, passages
from kelpie.world.database import Tx
from kelpie.world.statements import Prepared

_ALL = sa.select(passages)
_MANY = _ALL.where(passages.c.id.in_(listed("ids")))


@dataclass(frozen=True, slots=True)
class FoundPassages:
    """A passage and its hit; without words to look for there is no hit."""

    passage: Passage
    hit: Hit | None = None


@dataclass(frozen=True, slots=True)
class _Shape:
    """Everything about a query that changes the text of its statement."""

    by_archive: bool
    tags: str  # "", "any" or "all"
    since: bool
    until: bool

    @property
    def filters(self) -> bool:
        """True if it has more conditions than the archive or organisation."""
        return bool(self.tags) or self.since or self.until


def search(
    tx: Tx, place: ArchiveId | OrganizationId, query: PassageQuery, near: NearItems = NOTHING_NEAR
) -> list[FoundPassages]:
    """The best passages of an archive or of a whole organisation that pass the filters; without text by age.

    `near` is the result of `nearest` for the same query. Lost passages are included, so that the caller can report
    them.
    """
    shape, bound = _shape(place, query)
    if not query.text.strip():
        rows = tx.execute(_aged(shape, query.oldest_first), {**bound, "row_limit": query.limit})
        return [FoundPassages(from_row(row)) for row in rows]
    scope = place if isinstance(place, ArchiveId) else None
    only = Only(_same_row(shape), bound, _ARCHIVES) if shape.filters or scope is None else None
    hits = items.find(tx, "passage", scope, _wanted(query), only, near)
    # The nearest were found before; access to them is checked again here.
    found = _these(shape)(tx, {**bound, "ids": json.dumps([hit.id for hit in hits])}) if hits else ()
    rows = {row.id: row for row in found}
    return [FoundPassages(from_row(rows[hit.id]), hit) for hit in hits if hit.id in rows]


def nearest(
    tx: Tx,
    finder: NearestItems,
    place: ArchiveId | OrganizationId,
    models: Mapping[str, str],
    query: PassageQuery,
    meanings: Mapping[str, Vector],
) -> NearItems:
    """The passages nearest in meaning, of these archives, each with the model its vectors are of.

    The archives are those of the search; access to a passage is checked again when it is looked up.
    """
    shape, bound = _shape(place, query)
    only = Only(_same_row(shape), bound) if shape.filters else None
    return items.nearest(tx, finder, "passage", models, replace(_wanted(query), meanings=meanings), only)


def _wanted(query: PassageQuery) -> ItemQuery:
    return ItemQuery(query.text, query.limit, query.mode, mentions=query.mentions, times=_times)


# One row, because for each further row concurrent turns would wait for the interpreter once more.
_TIMES = Prepared(
    sa.select(sa.func.json_group_array(passages.c.id), sa.func.json_group_array(passages.c.created_at)).where(
        passages.c.id.in_(listed("ids"))
    )
)


def _times(tx: Tx, ids: Sequence[str]) -> dict[str, tuple[Micros, Micros]]:
    found, times = map(orjson.loads, _TIMES.first(tx, {"ids": json.dumps(ids)}))
    return {each: (at, at) for each, at in zip(found, times, strict=True)}


def _shape(place: ArchiveId | OrganizationId, query: PassageQuery) -> tuple[_Shape, dict[str, Any]]:
    tags = sorted(set(query.tags))
    shape = _Shape(
        isinstance(place, ArchiveId),
        ("all" if query.match_all_tags else "any") if tags else "",
        query.since is not None,
        query.until is not None,
    )
    return shape, {
        ("of_archive" if shape.by_archive else "of_organization"): place,
        **({"the_tags": tags} if tags else {}),
        **({"tag_count": len(tags)} if shape.tags == "all" else {}),
        **({"since": query.since} if shape.since else {}),
        **({"until": query.until} if shape.until else {}),
    }


_ARCHIVES = sa.select(archives.c.id).where(
    archives.c.organization_id == sa.bindparam("of_organization"), archives.c.removed.is_not(True)
)


_STILL_THERE = sa.exists(
    sa.select(sa.literal(1)).where(archives.c.id == sa.bindparam("of_archive"), archives.c.removed.is_not(True))
)


@lru_cache(maxsize=64)
def _same_row(shape: _Shape) -> sa.ColumnElement[bool]:
    """The condition that the item of a text match is a passage which passes the filters."""
    return sa.exists(sa.select(sa.literal(1)).where(passages.c.id == ITEM_ID, *_conditions(shape)))


@lru_cache(maxsize=64)
def _these(shape: _Shape) -> Callable[[Tx, Mapping[str, Any]], Sequence[Any]]:
    these = _MANY.where(*_conditions(shape, known=True))

    def with_tags(tx: Tx, bound: Mapping[str, Any]) -> Sequence[Any]:
        return tx.execute(these, bound).all()  # tags are a list of parameters

    return with_tags if shape.tags else Prepared(these).rows


@lru_cache(maxsize=64)
def _aged(shape: _Shape, oldest_first: bool) -> sa.Select[Any]:
    at, key = passages.c.created_at, passages.c.id
    order = (at, key) if oldest_first else (at.desc(), key.desc())
    return _ALL.where(*_conditions(shape)).order_by(*order).limit(sa.bindparam("row_limit", type_=sa.Integer))


def _conditions(shape: _Shape, *, known: bool = False) -> list[sa.ColumnElement[bool]]:
    """The conditions of a query. `known` means that the rows are looked up by their ids: then no index of all rows of
    an archive may tempt the planner, which took 28 ms for ten of 100,000."""
    c = passages.c
    owner = c.archive_id if shape.by_archive else c.organization_id
    owned = (owner.concat("") if known else owner) == sa.bindparam(
        "of_archive" if shape.by_archive else "of_organization"
    )
    where: list[sa.ColumnElement[bool]] = [owned]
    if not shape.by_archive:
        where.append(c.archive_id.not_in(sa.select(archives.c.id).where(archives.c.removed.is_(True))))
    elif known:  # it was there when the search began
        where.append(_STILL_THERE)
    if shape.since:
        where.append(c.created_at >= sa.bindparam("since"))
    if shape.until:
        where.append(c.created_at <= sa.bindparam("until"))
    tagged = passage_tags.c.tag.in_(sa.bindparam("the_tags", expanding=True)) & (passage_tags.c.passage_id == c.id)
    if shape.tags == "any":
        where.append(sa.exists(sa.select(sa.literal(1)).where(tagged).correlate(passages)))
    if shape.tags == "all":
        number = sa.select(sa.func.count()).select_from(passage_tags).where(tagged).correlate(passages)
        where.append(number.scalar_subquery() == sa.bindparam("tag_count"))
    return where
