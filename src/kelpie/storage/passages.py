"""Passages as rows, each with its tags, its text index entry and its vectors.

Every search names an archive or an organisation, and that is a condition in SQL, as are tags and dates: what lies
outside is neither shown nor counted among the best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from kelpie.core.errors import Damaged, NotFound
from kelpie.core.ids import AgentId, ArchiveId, OrganizationId, PassageId
from kelpie.core.paging import Page
from kelpie.core.passages import LOST, Passage, PassageQuery
from kelpie.core.search import Hit
from kelpie.search import items
from kelpie.search.items import Item, Near, NearestItems, Wanted
from kelpie.search.lookup import ITEM_ID, Only
from kelpie.search.vectors import Vector
from kelpie.storage import paging
from kelpie.storage.checksums import checksum, report
from kelpie.storage.parts import inside, pattern
from kelpie.storage.tables import agent_archives, archives, passage_tags, passages
from kelpie.world.database import Tx

_FIELDS = tuple(each.name for each in fields(Passage))

_ALL = sa.select(passages)
_ONE = _ALL.where(passages.c.id == sa.bindparam("of_passage"))
_MANY = _ALL.where(passages.c.id.in_(sa.bindparam("ids", expanding=True)))
_IN_ARCHIVE = _ALL.where(passages.c.archive_id == sa.bindparam("of_archive"))
_CONTAINING = _IN_ARCHIVE.where(inside(passages.c.text, "part"))
_INSERT = sa.insert(passages)
_INSERT_TAG = sa.insert(passage_tags)
_DELETE = sa.delete(passages).where(
    passages.c.id == sa.bindparam("of_passage"), passages.c.archive_id == sa.bindparam("of_archive")
)


def _from_row(row: sa.Row[Any]) -> Passage:
    """The passage; one whose row is damaged is `lost`, and that is put into the log."""
    lost = row.checksum is not None and row.checksum != checksum(row.text, row.tags, row.metadata)
    if lost:
        report("passage", row.id)
    return Passage(
        id=PassageId(row.id),
        archive_id=ArchiveId(row.archive_id),
        text=LOST if lost else row.text,
        created_at=row.created_at,
        updated_at=row.updated_at,
        tags=() if lost else tuple(row.tags),
        metadata={} if lost else row.metadata,
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
    )


Vectors = Mapping[str, tuple[Vector, ...]]  # of a text, in the space of one model or several


def insert(tx: Tx, passage: Passage, vectors: tuple[Vector, ...] = ()) -> None:
    """Writes a passage and makes it findable."""
    insert_many(tx, (passage,), {passage.text: vectors})


def insert_many(tx: Tx, made: Sequence[Passage], vectors: Vectors | None = None) -> None:
    """Writes passages and makes them findable: by their words, and where their text has vectors, by meaning."""
    if not made:
        return
    tx.execute(_INSERT, [_to_row(passage) for passage in made])
    tags = [{"passage_id": passage.id, "tag": tag} for passage in made for tag in dict.fromkeys(passage.tags)]
    if tags:
        tx.execute(_INSERT_TAG, tags)
    scopes: dict[ArchiveId, list[Item]] = {}
    for passage in made:
        item = Item(passage.id, passage.text, (vectors or {}).get(passage.text, ()))
        scopes.setdefault(passage.archive_id, []).append(item)
    for archive_id, found in scopes.items():
        items.put_many(tx, "passage", archive_id, found)


def _to_row(passage: Passage) -> dict[str, Any]:
    row = {name: getattr(passage, name) for name in _FIELDS}
    tags, metadata = sorted(set(passage.tags)), dict(passage.metadata)
    return row | {"tags": tags, "metadata": metadata, "checksum": checksum(passage.text, tags, metadata)}


def get(tx: Tx, passage_id: PassageId) -> Passage:
    """Raises NotFound, or Damaged."""
    row = tx.execute(_ONE, {"of_passage": passage_id}).first()
    if row is None:
        raise NotFound("Passage", passage_id)
    found = _from_row(row)
    if found.lost:
        raise Damaged("Passage", passage_id)
    return found


def texts(tx: Tx, ids: Sequence[str]) -> dict[str, str]:
    """What these passages say; those that do not exist, or are lost, are left out."""
    found = map(_from_row, tx.execute(_MANY, {"ids": list(ids)})) if ids else ()
    return {passage.id: passage.text for passage in found if not passage.lost}


def delete(tx: Tx, archive_id: ArchiveId | None, passage_id: PassageId) -> None:
    """Removes a passage of this archive, its tags and its index entry. Raises NotFound."""
    if tx.execute(_DELETE, {"of_passage": passage_id, "of_archive": archive_id}).rowcount == 0:
        raise NotFound("Passage", passage_id)
    items.remove_many(tx, "passage", (passage_id,))


_COUNT_OF_AGENT = (
    sa.select(sa.func.count())
    .select_from(passages)
    .join(agent_archives, agent_archives.c.archive_id == passages.c.archive_id)
    .where(agent_archives.c.agent_id == sa.bindparam("of_agent"))
)


def count_of_agent(tx: Tx, agent_id: AgentId) -> int:
    """How many passages an agent's archives hold."""
    return int(tx.execute(_COUNT_OF_AGENT, {"of_agent": agent_id}).scalar_one())


def select(tx: Tx, archive_id: ArchiveId, page: Page, containing: str | None = None) -> list[Passage]:
    """The passages of an archive on the page asked for; with `containing`, those whose text has that part in it."""
    bound = {"of_archive": archive_id} | ({"part": pattern(containing)} if containing else {})
    statement = _CONTAINING if containing else _IN_ARCHIVE
    rows = paging.page(tx, statement, passages, page, bound, within={"archive_id": archive_id})
    return [_from_row(row) for row in rows]


# --- search ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A passage, and how it was found; without words to look for there is no hit."""

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
        """Whether it asks for more than a place to look in."""
        return bool(self.tags) or self.since or self.until


def search(tx: Tx, place: ArchiveId | OrganizationId, query: PassageQuery, near: Sequence[Near] = ()) -> list[Found]:
    """The best passages of an archive or of a whole organisation that pass the filters; without text by age.

    `near` are those that `nearest` has found, with the same query. Passages that are lost are among them, so that
    whoever asked can be told.
    """
    shape, bound = _shape(place, query)
    if not query.text.strip():
        rows = tx.execute(_aged(shape, query.oldest_first), {**bound, "row_limit": query.limit})
        return [Found(_from_row(row)) for row in rows]
    scope = place if isinstance(place, ArchiveId) else None
    only = Only(_same_row(shape), bound, _ARCHIVES) if shape.filters or scope is None else None
    hits = items.find(tx, "passage", scope, _wanted(query), only, near)
    # What is near was found before; whether it may be seen is asked again, here.
    found = tx.execute(_these(shape), {**bound, "ids": [hit.id for hit in hits]}).all() if hits else ()
    rows = {row.id: row for row in found}
    return [Found(_from_row(rows[hit.id]), hit) for hit in hits if hit.id in rows]


def nearest(
    tx: Tx,
    finder: NearestItems,
    place: ArchiveId | OrganizationId,
    models: Mapping[str, str],
    query: PassageQuery,
    meanings: Mapping[str, Vector],
) -> list[Near]:
    """The passages nearest in meaning, of these archives, each with the model its vectors are of.

    The archives are those of the place; whether a passage may be seen is asked again when it is looked up.
    """
    shape, bound = _shape(place, query)
    only = Only(_same_row(shape), bound) if shape.filters else None
    return items.nearest(tx, finder, "passage", models, replace(_wanted(query), meanings=meanings), only)


def _wanted(query: PassageQuery) -> Wanted:
    return Wanted(query.text, query.limit, query.mode)


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
    """That the item of a text match is a passage which passes the filters."""
    return sa.exists(sa.select(sa.literal(1)).where(passages.c.id == ITEM_ID, *_conditions(shape)))


@lru_cache(maxsize=64)
def _these(shape: _Shape) -> sa.Select[Any]:
    return _MANY.where(*_conditions(shape, known=True))


@lru_cache(maxsize=64)
def _aged(shape: _Shape, oldest_first: bool) -> sa.Select[Any]:
    at, key = passages.c.created_at, passages.c.id
    order = (at, key) if oldest_first else (at.desc(), key.desc())
    return _ALL.where(*_conditions(shape)).order_by(*order).limit(sa.bindparam("row_limit", type_=sa.Integer))


def _conditions(shape: _Shape, *, known: bool = False) -> list[sa.ColumnElement[bool]]:
    """`known` says that the rows are looked up by their ids: then no index of all rows of an archive may tempt the
    planner, which took 28 ms for ten of 100,000."""
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
