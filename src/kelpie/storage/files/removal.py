"""Deletion of files and folders with everything in them.

A large one disappears at once for every client and every search, and is deleted in small pieces afterwards; what a
crash leaves is found again, because its own row is deleted last. So is the text of a file that could not be processed.
"""

import sqlalchemy as sa

from kelpie.core.ids import AgentId, FileId, FolderId, OrganizationId
from kelpie.search import items, scope_removal
from kelpie.storage.agents import agents
from kelpie.storage.files import attachments, passages
from kelpie.storage.files import files as file_rows
from kelpie.storage.files import folders as folder_rows
from kelpie.storage.rows.piece_size import ROWS_MAX
from kelpie.storage.tables import file_passages, file_views, files, folders
from kelpie.world.database import Tx

_VIEWERS = sa.select(file_views.c.agent_id).where(file_views.c.file_id == sa.bindparam("of_file"))
_HIDE = sa.update(files).where(files.c.id == sa.bindparam("of_file")).values(removed=True)
_DROP = sa.delete(files).where(files.c.id == sa.bindparam("of_file"))
_DROP_VIEWS = sa.delete(file_views).where(file_views.c.file_id == sa.bindparam("of_file"))
_HIDE_FOLDER = sa.update(folders).where(folders.c.id == sa.bindparam("of_folder")).values(removed=True)
_HIDE_FILES = sa.update(files).where(files.c.folder_id == sa.bindparam("of_folder")).values(removed=True)
_DROP_FOLDER = sa.delete(folders).where(folders.c.id == sa.bindparam("of_folder"))
_REMOVED = sa.select(files.c.id).where(files.c.removed.is_(True)).order_by(files.c.id).limit(1)
_REMOVED_FOLDER = sa.select(folders.c.id).where(folders.c.removed.is_(True)).order_by(folders.c.id).limit(1)
_FAILED = (
    sa.select(file_passages.c.file_id)
    .join(files, files.c.id == file_passages.c.file_id)
    .where(files.c.status == "error")
    .limit(1)
)


def delete_file(
    tx: Tx, organization: OrganizationId, file_id: FileId, folder_id: FolderId | None, rows: int = ROWS_MAX
) -> tuple[AgentId, ...]:
    """Deletes a file: for clients now, and at most so many of its passages; returns the agents that must reload.
    Raises NotFound."""
    file = file_rows.get(tx, organization, file_id, folder_id)
    seen_by = attachments.users(tx, organization, file.folder_id) if file.status == "completed" else ()
    agents.bump_many(tx, seen_by)
    tx.execute(_HIDE, {"of_file": file_id})
    tx.execute(_DROP_VIEWS, {"of_file": file_id})
    _purge(tx, file_id, rows)
    return seen_by


def _purge(tx: Tx, file_id: str, rows: int) -> bool:
    if passages.drop_some(tx, FileId(file_id), rows) >= rows:
        return False
    tx.execute(_DROP, {"of_file": file_id})
    return True


def delete_folder(tx: Tx, organization: OrganizationId, folder_id: FolderId) -> tuple[AgentId, ...]:
    """Deletes a folder with its files: for clients now, the rows later; returns the agents that had it.
    Raises NotFound."""
    folder_rows.require(tx, organization, folder_id)
    touched = attachments.detach_all(tx, organization, folder_id)
    tx.execute(_HIDE_FOLDER, {"of_folder": folder_id})
    tx.execute(_HIDE_FILES, {"of_folder": folder_id})
    return touched


def needs_cleanup(tx: Tx) -> bool:
    """Checks whether rows of deleted files and folders, or of files that failed, remain."""
    return any(tx.execute(statement).first() is not None for statement in (_REMOVED, _REMOVED_FOLDER, _FAILED))


def clean_up(tx: Tx, rows: int = ROWS_MAX) -> None:
    """Deletes a piece of what remains."""
    if (failed := tx.execute(_FAILED).scalar()) is not None:
        passages.drop_some(tx, FileId(failed), rows)
    elif (file_id := tx.execute(_REMOVED).scalar()) is not None:
        _purge(tx, file_id, rows)
    elif (folder_id := tx.execute(_REMOVED_FOLDER).scalar()) is not None:
        _purge_folder(tx, folder_id, rows)


def _purge_folder(tx: Tx, folder_id: str, rows: int) -> None:
    """Removes what is left of a folder without files from the search, and at last its row."""
    if scope_removal.remove_piece(tx, "file_passage", folder_id, rows):
        items.forget_scope(tx, "file_passage", folder_id)
        tx.execute(_DROP_FOLDER, {"of_folder": folder_id})
