"""Deletion of archives with all their contents.

A large archive disappears at once for every client, and is deleted in small pieces afterwards, so that no client waits.
"""

import sqlalchemy as sa

from kelpie.core.ids import AgentId, ArchiveId, OrganizationId
from kelpie.search import items
from kelpie.storage.archives import archives as rows
from kelpie.storage.tables import agent_archives, archives, passages
from kelpie.world.database import Tx

PIECE = 200  # passages that are deleted in one transaction: about 10 ms

_DELETE = sa.delete(archives).where(archives.c.id == sa.bindparam("of_archive"))
_FEW_OF = sa.select(passages.c.id).where(passages.c.archive_id == sa.bindparam("of_archive")).limit(PIECE + 1)
_REMOVE = sa.update(archives).where(archives.c.id == sa.bindparam("of_archive")).values(removed=True)
_DETACH_ALL = sa.delete(agent_archives).where(agent_archives.c.archive_id == sa.bindparam("of_archive"))
_REMOVED = sa.select(archives.c.id).where(archives.c.removed.is_(True)).order_by(archives.c.id).limit(1)
_DELETE_PASSAGES = sa.delete(passages).where(passages.c.id.in_(sa.bindparam("ids", expanding=True)))
_others = agent_archives.alias("others")
_OWNED_ALONE = (
    sa.select(agent_archives.c.archive_id)
    .where(agent_archives.c.agent_id == sa.bindparam("of_agent"), agent_archives.c.is_owner)
    .where(
        ~sa.exists().where(
            _others.c.archive_id == agent_archives.c.archive_id, _others.c.agent_id != agent_archives.c.agent_id
        )
    )
)


def delete(tx: Tx, organization: OrganizationId, archive_id: ArchiveId) -> None:
    """Deletes the archive, its passages and their text index, and detaches its agents. Raises NotFound."""
    rows.require(tx, organization, archive_id)
    _delete(tx, archive_id)


def _delete(tx: Tx, archive_id: str) -> None:
    found = _some_of(tx, archive_id)
    if len(found) <= PIECE:
        _delete_whole(tx, archive_id, found)
        return
    tx.execute(_REMOVE, {"of_archive": archive_id})
    tx.execute(_DETACH_ALL, {"of_archive": archive_id})


def needs_cleanup(tx: Tx) -> bool:
    """Checks whether rows of a deleted archive remain."""
    return tx.execute(_REMOVED).scalar() is not None


def clean_up(tx: Tx) -> None:
    """Deletes a piece of what remains of a deleted archive, and with the last piece the archive."""
    archive_id = tx.execute(_REMOVED).scalar()
    if archive_id is None:
        return
    found = _some_of(tx, archive_id)
    if len(found) <= PIECE:
        _delete_whole(tx, archive_id, found)
    else:
        items.remove_many(tx, "passage", found)
        tx.execute(_DELETE_PASSAGES, {"ids": found})


def _some_of(tx: Tx, archive_id: str) -> list[str]:
    """All passages of an archive, or one more than a piece."""
    return [row[0] for row in tx.execute(_FEW_OF, {"of_archive": archive_id})]


def _delete_whole(tx: Tx, archive_id: str, passage_ids: list[str]) -> None:
    items.remove_many(tx, "passage", passage_ids)
    items.forget_scope(tx, "passage", archive_id)
    tx.execute(_DELETE, {"of_archive": archive_id})


def remove_owned(tx: Tx, agent_id: AgentId) -> None:
    """Deletes the archive that belongs to this agent alone, with its passages and their text index."""
    for (archive_id,) in tx.execute(_OWNED_ALONE, {"of_agent": agent_id}).all():
        _delete(tx, archive_id)
