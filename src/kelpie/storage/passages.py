"""Archival memory as rows: an agent's archive and the passages in it, each with its text index entry.

The archive is a condition in every statement here, so no search can see into another one.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import NotFound, StorageBusy
from kelpie.core.ids import AgentId, ArchiveId, OrganizationId, PassageId
from kelpie.core.paging import Page
from kelpie.core.passages import Passage, PassageQuery
from kelpie.core.time import Micros
from kelpie.search import fulltext
from kelpie.storage import paging
from kelpie.storage.matches import BATCH, CANDIDATES_MAX, ranked
from kelpie.storage.tables import agent_archives, agents, archives, passages
from kelpie.world.database import Tx

_others = agent_archives.alias("others")
_ARCHIVE_OF = sa.select(agent_archives.c.archive_id).where(agent_archives.c.agent_id == sa.bindparam("of_agent"))
_AGENT = sa.select(agents.c.name, agents.c.organization_id, agents.c.embedding).where(
    agents.c.id == sa.bindparam("of_agent")
)
_INSERT_ARCHIVE = sa.insert(archives)
_ATTACH_ARCHIVE = sa.insert(agent_archives)


def archive_of(tx: Tx, agent_id: AgentId) -> ArchiveId | None:
    """The agent's archive, if it has one."""
    found = tx.execute(_ARCHIVE_OF, {"of_agent": agent_id}).scalar()
    return None if found is None else ArchiveId(found)


def ensure_archive(tx: Tx, agent_id: AgentId, new_id: ArchiveId, now: Micros) -> ArchiveId:
    """The agent's archive; made with `new_id` when it has none. Raises NotFound for an unknown agent.

    Raises StorageBusy when somebody else made one at the same moment: trying again finds it.
    """
    there = archive_of(tx, agent_id)
    if there is not None:
        return there
    agent = tx.execute(_AGENT, {"of_agent": agent_id}).first()
    if agent is None:
        raise NotFound("Agent", agent_id)
    row = {
        "id": new_id,
        "organization_id": agent.organization_id,
        "name": f"{agent.name}'s archive",
        "description": None,
        "embedding": agent.embedding,
        "metadata": None,
        "created_at": now,
        "updated_at": now,
    }
    try:
        tx.execute(_INSERT_ARCHIVE, row)
        tx.execute(_ATTACH_ARCHIVE, {"agent_id": agent_id, "archive_id": new_id, "is_owner": True})
    except IntegrityError as error:
        raise StorageBusy(f"The archive of {agent_id} is being made by somebody else.") from error
    return new_id


_OWNED_ALONE = (
    sa.select(agent_archives.c.archive_id)
    .where(agent_archives.c.agent_id == sa.bindparam("of_agent"), agent_archives.c.is_owner)
    .where(
        ~sa.exists().where(
            _others.c.archive_id == agent_archives.c.archive_id, _others.c.agent_id != agent_archives.c.agent_id
        )
    )
)
_DELETE_ARCHIVE = sa.delete(archives).where(archives.c.id == sa.bindparam("of_archive"))


def remove_owned(tx: Tx, agent_id: AgentId) -> None:
    """Deletes the archive that is only this agent's own, with its passages and their text index."""
    for (archive_id,) in tx.execute(_OWNED_ALONE, {"of_agent": agent_id}).all():
        fulltext.remove_scope(tx, "passage", archive_id)
        tx.execute(_DELETE_ARCHIVE, {"of_archive": archive_id})


_INSERT = sa.insert(passages)
_ALL = sa.select(passages)
_IN_ARCHIVE = _ALL.where(passages.c.archive_id == sa.bindparam("of_archive"))
_MANY = _IN_ARCHIVE.where(passages.c.id.in_(sa.bindparam("ids", expanding=True)))
_ONE = _ALL.where(passages.c.id == sa.bindparam("of_passage"))
_DELETE = sa.delete(passages).where(passages.c.id == sa.bindparam("of_passage"))


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
    )


def insert(tx: Tx, passage: Passage) -> None:
    """Writes a passage and makes it findable."""
    row = {
        "id": passage.id,
        "archive_id": passage.archive_id,
        "organization_id": passage.organization_id,
        "text": passage.text,
        "tags": sorted(set(passage.tags)),
        "metadata": dict(passage.metadata),
        "created_at": passage.created_at,
        "updated_at": passage.updated_at,
    }
    tx.execute(_INSERT, row)
    fulltext.index(tx, "passage", passage.archive_id, passage.id, passage.text)


def get(tx: Tx, passage_id: PassageId) -> Passage:
    """Raises NotFound."""
    row = tx.execute(_ONE, {"of_passage": passage_id}).first()
    if row is None:
        raise NotFound("Passage", passage_id)
    return _from_row(row)


def delete(tx: Tx, passage_id: PassageId) -> None:
    """Removes a passage and its index entry. Raises NotFound."""
    if tx.execute(_DELETE, {"of_passage": passage_id}).rowcount == 0:
        raise NotFound("Passage", passage_id)
    fulltext.remove(tx, "passage", passage_id)


def select(tx: Tx, archive_id: ArchiveId, page: Page) -> list[Passage]:
    """The passages of an archive, in the order and on the page asked for."""
    return [_from_row(row) for row in paging.page(tx, _IN_ARCHIVE, passages, page, {"of_archive": archive_id})]


def search(tx: Tx, archive_id: ArchiveId, query: PassageQuery) -> list[tuple[Passage, float | None]]:
    """The best passages that pass the filters, with their score; without text the newest, and no score."""
    candidates = _matching(tx, archive_id, query.text) if query.text.strip() else _newest(tx, archive_id)
    return list(islice((found for found in candidates if query.takes(found[0])), query.limit))


def _matching(tx: Tx, archive_id: ArchiveId, text: str) -> Iterable[tuple[Passage, float | None]]:
    for batch in ranked(tx, "passage", archive_id, text):
        rows = _by_id(tx, archive_id, [item_id for item_id, _ in batch])
        yield from ((rows[item_id], score) for item_id, score in batch if item_id in rows)


def _by_id(tx: Tx, archive_id: ArchiveId, ids: Sequence[str]) -> dict[str, Passage]:
    return {row.id: _from_row(row) for row in tx.execute(_MANY, {"of_archive": archive_id, "ids": list(ids)})}


def _newest(tx: Tx, archive_id: ArchiveId) -> Iterable[tuple[Passage, float | None]]:
    last: str | None = None
    for _ in range(0, CANDIDATES_MAX, BATCH):
        found = select(tx, archive_id, Page(limit=BATCH, after=last))
        yield from ((passage, None) for passage in found)
        if len(found) < BATCH:
            return
        last = found[-1].id
