"""Passages as rows, each with its tags, its text index entry and its vectors. `passage_search` finds them."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, ArchiveId, OrganizationId, PassageId
from kelpie.core.memory.passages import LOST, Passage
from kelpie.core.paging import Page
from kelpie.search import items
from kelpie.search.items import Item
from kelpie.search.vector_rows import Vector
from kelpie.storage.rows import paging
from kelpie.storage.rows.checksums import checksum, report
from kelpie.storage.rows.text_match import inside, pattern
from kelpie.storage.tables import agent_archives, passage_tags, passages
from kelpie.world.database import Tx

_FIELDS = tuple(each.name for each in fields(Passage))

_ALL = sa.select(passages)
_MANY = _ALL.where(passages.c.id.in_(sa.bindparam("ids", expanding=True)))
_IN_ARCHIVE = _ALL.where(passages.c.archive_id == sa.bindparam("of_archive"))
_CONTAINING = _IN_ARCHIVE.where(inside(passages.c.text, "part"))
_INSERT = sa.insert(passages)
_INSERT_TAG = sa.insert(passage_tags)
_DELETE = sa.delete(passages).where(
    passages.c.id == sa.bindparam("of_passage"), passages.c.archive_id == sa.bindparam("of_archive")
)


def from_row(row: sa.Row[Any]) -> Passage:
    """The passage; one whose row is damaged is `lost`, and that is logged."""
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
        batch_id=row.batch_id,
        position=row.position,
    )


Vectors = Mapping[str, tuple[Vector, ...]]  # of a text, in the space of one model or several


def insert(tx: Tx, passage: Passage, vectors: tuple[Vector, ...] = ()) -> None:
    """Writes a passage and indexes it."""
    insert_many(tx, (passage,), {passage.text: vectors})


def insert_many(tx: Tx, made: Sequence[Passage], vectors: Vectors | None = None) -> None:
    """Writes passages and indexes them: by their words, and if their text has vectors, by meaning."""
    if not made:
        return
    tx.execute(_INSERT, [_to_row(passage) for passage in made])
    tags = [{"passage_id": passage.id, "tag": tag} for passage in made for tag in dict.fromkeys(passage.tags)]
    if tags:
        tx.execute(_INSERT_TAG, tags)
    scopes: dict[ArchiveId, list[Item]] = {}
    for passage in made:
        found = (vectors or {}).get(passage.text, ())
        item = Item(passage.id, passage.text, found, passage.batch_id, passage.position)
        scopes.setdefault(passage.archive_id, []).append(item)
    for archive_id, some in scopes.items():
        items.put_many(tx, "passage", archive_id, some)


def _to_row(passage: Passage) -> dict[str, Any]:
    row = {name: getattr(passage, name) for name in _FIELDS}
    tags, metadata = sorted(set(passage.tags)), dict(passage.metadata)
    return row | {"tags": tags, "metadata": metadata, "checksum": checksum(passage.text, tags, metadata)}


def texts(tx: Tx, ids: Sequence[str]) -> dict[str, str]:
    """The texts of these passages; missing or lost ones are left out."""
    found = map(from_row, tx.execute(_MANY, {"ids": list(ids)})) if ids else ()
    return {passage.id: passage.text for passage in found if not passage.lost}


def delete(tx: Tx, archive_id: ArchiveId | None, passage_id: PassageId) -> None:
    """Deletes a passage of this archive, its tags and its index entry. Raises NotFound."""
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
    """Number of passages in an agent's archives."""
    return int(tx.execute(_COUNT_OF_AGENT, {"of_agent": agent_id}).scalar_one())


def select(tx: Tx, archive_id: ArchiveId, page: Page, containing: str | None = None) -> list[Passage]:
    """The passages of an archive on the requested page; with `containing`, those whose text contains that part."""
    bound = {"of_archive": archive_id} | ({"part": pattern(containing)} if containing else {})
    statement = _CONTAINING if containing else _IN_ARCHIVE
    rows = paging.page(tx, statement, passages, page, bound, within={"archive_id": archive_id})
    return [from_row(row) for row in rows]
