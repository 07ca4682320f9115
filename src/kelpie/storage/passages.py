"""Passages as rows, each with its tags and its text index entry.

Every search names an archive or an organisation, and that is a condition in SQL, as are tags and dates: what lies
outside is neither shown nor counted among the best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, ArchiveId, OrganizationId, PassageId
from kelpie.core.paging import Page
from kelpie.core.passages import Passage, PassageQuery
from kelpie.search import fulltext
from kelpie.search.fulltext import Only
from kelpie.storage import paging
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
    return Passage(
        id=PassageId(row.id),
        archive_id=ArchiveId(row.archive_id),
        text=row.text,
        created_at=row.created_at,
        updated_at=row.updated_at,
        tags=tuple(row.tags),
        metadata=row.metadata,
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
    )


def insert(tx: Tx, passage: Passage) -> None:
    """Writes a passage and makes it findable."""
    insert_many(tx, (passage,))


def insert_many(tx: Tx, made: Sequence[Passage]) -> None:
    """Writes passages and makes them findable."""
    if not made:
        return
    tx.execute(_INSERT, [_to_row(passage) for passage in made])
    tags = [{"passage_id": passage.id, "tag": tag} for passage in made for tag in dict.fromkeys(passage.tags)]
    if tags:
        tx.execute(_INSERT_TAG, tags)
    scopes: dict[ArchiveId, dict[str, str]] = {}
    for passage in made:
        scopes.setdefault(passage.archive_id, {})[passage.id] = passage.text
    for archive_id, texts in scopes.items():
        fulltext.index_many(tx, "passage", archive_id, texts)


def _to_row(passage: Passage) -> dict[str, Any]:
    row = {name: getattr(passage, name) for name in _FIELDS}
    return row | {"tags": sorted(set(passage.tags)), "metadata": dict(passage.metadata)}


def get(tx: Tx, passage_id: PassageId) -> Passage:
    """Raises NotFound."""
    row = tx.execute(_ONE, {"of_passage": passage_id}).first()
    if row is None:
        raise NotFound("Passage", passage_id)
    return _from_row(row)


def delete(tx: Tx, archive_id: ArchiveId | None, passage_id: PassageId) -> None:
    """Removes a passage of this archive, its tags and its index entry. Raises NotFound."""
    if tx.execute(_DELETE, {"of_passage": passage_id, "of_archive": archive_id}).rowcount == 0:
        raise NotFound("Passage", passage_id)
    fulltext.remove(tx, "passage", passage_id)


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

Found = tuple[Passage, float | None]


@dataclass(frozen=True, slots=True)
class _Shape:
    """Everything about a query that changes the text of its statement."""

    by_archive: bool
    tags: str  # "", "any" or "all"
    since: bool
    until: bool


def search(tx: Tx, archive_id: ArchiveId, query: PassageQuery) -> list[Found]:
    """The best passages of an archive that pass the filters, with their score; without text by age, and no score."""
    return _search(tx, query, archive_id, None)


def search_organization(tx: Tx, organization: OrganizationId, query: PassageQuery) -> list[Found]:
    """The same among all passages of an organisation."""
    return _search(tx, query, None, organization)


def _search(
    tx: Tx, query: PassageQuery, archive_id: ArchiveId | None, organization: OrganizationId | None
) -> list[Found]:
    tags = sorted(set(query.tags))
    shape = _Shape(
        archive_id is not None,
        ("all" if query.match_all_tags else "any") if tags else "",
        query.since is not None,
        query.until is not None,
    )
    bound: dict[str, Any] = {
        **({"of_organization": organization} if archive_id is None else {"of_archive": archive_id}),
        **({"the_tags": tags} if tags else {}),
        **({"tag_count": len(tags)} if shape.tags == "all" else {}),
        **({"since": query.since} if shape.since else {}),
        **({"until": query.until} if shape.until else {}),
    }
    return _matching(tx, archive_id, query, shape, bound) if query.text.strip() else _by_age(tx, query, shape, bound)


def _matching(
    tx: Tx, archive_id: ArchiveId | None, query: PassageQuery, shape: _Shape, bound: Mapping[str, Any]
) -> list[Found]:
    only = Only(_same_row(shape), bound)
    best = fulltext.search(tx, "passage", archive_id, query.text, query.limit, only=only)
    rows = {row.id: row for row in tx.execute(_MANY, {"ids": [item_id for item_id, _ in best]})} if best else {}
    return [(_from_row(rows[item_id]), score) for item_id, score in best]


def _by_age(tx: Tx, query: PassageQuery, shape: _Shape, bound: Mapping[str, Any]) -> list[Found]:
    rows = tx.execute(_aged(shape, query.oldest_first), {**bound, "row_limit": query.limit})
    return [(_from_row(row), None) for row in rows]


@lru_cache(maxsize=64)
def _same_row(shape: _Shape) -> sa.ColumnElement[bool]:
    """That the item of a text match is a passage which passes the filters."""
    return sa.exists(sa.select(sa.literal(1)).where(passages.c.id == fulltext.ITEM_ID, *_conditions(shape)))


@lru_cache(maxsize=64)
def _aged(shape: _Shape, oldest_first: bool) -> sa.Select[Any]:
    at, key = passages.c.created_at, passages.c.id
    order = (at, key) if oldest_first else (at.desc(), key.desc())
    return _ALL.where(*_conditions(shape)).order_by(*order).limit(sa.bindparam("row_limit", type_=sa.Integer))


def _conditions(shape: _Shape) -> list[sa.ColumnElement[bool]]:
    c = passages.c
    if shape.by_archive:
        where: list[sa.ColumnElement[bool]] = [c.archive_id == sa.bindparam("of_archive")]
    else:
        removed = sa.select(archives.c.id).where(archives.c.removed.is_(True))
        where = [c.organization_id == sa.bindparam("of_organization"), c.archive_id.not_in(removed)]
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
