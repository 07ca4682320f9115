"""Deletion of archives with all their contents.

A large archive disappears at once for every client, and is deleted in small pieces afterwards, so that no client waits:
its search entries first, then its passages, and at last its own row. Until then its id cannot be used again, and what
is left after a crash is found.
"""

import sqlalchemy as sa

from kelpie.core.ids import AgentId, ArchiveId, OrganizationId
from kelpie.search import items, scope_removal
from kelpie.storage.archives import archives as archive_rows
from kelpie.storage.rows.piece_size import ROWS_MAX, within_bytes
from kelpie.storage.tables import agent_archives, archives, passages
from kelpie.world.database import Tx

_DELETE = sa.delete(archives).where(archives.c.id == sa.bindparam("of_archive"))
_FEW_OF = (
    sa.select(passages.c.id, sa.func.length(passages.c.text).label("size"))
    .where(passages.c.archive_id == sa.bindparam("of_archive"))
    .limit(sa.bindparam("most", type_=sa.Integer))
)
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


def delete(tx: Tx, organization: OrganizationId, archive_id: ArchiveId, rows: int = ROWS_MAX) -> None:
    """Deletes the archive, its passages and their text index, and detaches its agents: now or, when it has more rows
    than that, piece by piece later. Raises NotFound."""
    archive_rows.require(tx, organization, archive_id)
    _delete(tx, archive_id, rows)


def _delete(tx: Tx, archive_id: str, rows: int) -> None:
    found, is_all = _some_of(tx, archive_id, rows)
    if is_all:
        items.remove_many(tx, "passage", found)
        items.forget_scope(tx, "passage", archive_id)
        tx.execute(_DELETE, {"of_archive": archive_id})
        return
    tx.execute(_REMOVE, {"of_archive": archive_id})
    tx.execute(_DETACH_ALL, {"of_archive": archive_id})


def needs_cleanup(tx: Tx) -> bool:
    """Checks whether rows of a deleted archive remain."""
    return tx.execute(_REMOVED).scalar() is not None


def clean_up(tx: Tx, rows: int = ROWS_MAX) -> None:
    """Deletes at most so many search entries and passages of a deleted archive, and with the last of them the
    archive."""
    archive_id = tx.execute(_REMOVED).scalar()
    if archive_id is None or not scope_removal.remove_piece(tx, "passage", archive_id, rows):
        return
    found, is_all = _some_of(tx, archive_id, rows)
    if found:
        tx.execute(_DELETE_PASSAGES, {"ids": found})
    if is_all:
        tx.execute(_DELETE, {"of_archive": archive_id})


def _some_of(tx: Tx, archive_id: str, rows: int) -> tuple[list[str], bool]:
    """Passages of an archive, as many as a piece may delete, and whether these are all."""
    found = tx.execute(_FEW_OF, {"of_archive": archive_id, "most": rows + 1}).all()
    count = within_bytes(row.size for row in found[:rows])
    return [row.id for row in found[:count]], count == len(found)


def remove_owned(tx: Tx, agent_id: AgentId, rows: int = ROWS_MAX) -> None:
    """Deletes the archive that belongs to this agent alone, as `delete` does."""
    for (archive_id,) in tx.execute(_OWNED_ALONE, {"of_agent": agent_id}).all():
        _delete(tx, archive_id, rows)
