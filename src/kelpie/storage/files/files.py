"""Files as rows: uploaded, listed, and on their way through processing. Their text is in `passages`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict, NotFound
from kelpie.core.files.files import File, FileStatus
from kelpie.core.ids import FileId, FolderId, OrganizationId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.search.tables import search_items
from kelpie.storage.rows import paging
from kelpie.storage.tables import files, folders
from kelpie.world.database import Tx

_FIELDS = tuple(each.name for each in fields(File))

_PRESENT = sa.select(files).where(files.c.removed.is_(False))
_ONE = _PRESENT.where(files.c.id == sa.bindparam("of_file"), files.c.organization_id == sa.bindparam("of_organization"))
_ANYBODYS = _PRESENT.where(files.c.id == sa.bindparam("of_file"))
_OF_FOLDER = _PRESENT.where(
    files.c.folder_id == sa.bindparam("of_folder"), files.c.organization_id == sa.bindparam("of_organization")
)
_ORIGINALS = _PRESENT.where(
    files.c.folder_id == sa.bindparam("of_folder"), files.c.original_name == sa.bindparam("of_name")
).order_by(files.c.created_at.desc(), files.c.id.desc())
_NAMED = _PRESENT.where(files.c.folder_id == sa.bindparam("of_folder"), files.c.name == sa.bindparam("of_name"))
_INSERT = sa.insert(files)


def from_row(row: sa.Row[Any]) -> File:
    """A file from all of its columns."""
    return File(
        id=FileId(row.id),
        folder_id=FolderId(row.folder_id),
        name=row.name,
        original_name=row.original_name,
        media_type=row.media_type,
        size=row.size,
        created_at=row.created_at,
        updated_at=row.updated_at,
        status=FileStatus(row.status),
        error=row.error,
        passages=row.passages,
        indexed=row.indexed,
        embedded=row.embedded,
        lines=row.lines,
        chars=row.chars,
        attempts=row.attempts,
        note=row.note,
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
    )


def insert(tx: Tx, file: File) -> None:
    """Writes a new file. Raises Conflict when its name is used in its folder."""
    row = {name: getattr(file, name) for name in _FIELDS}
    try:
        tx.execute(_INSERT, {**row, "status": file.status.value, "removed": False, "opened_after": None})
    except IntegrityError as error:
        raise Conflict(f"The folder has a file with the name '{file.name}' already. Try again.") from error


def get(tx: Tx, organization: OrganizationId, file_id: FileId, folder_id: FolderId | None = None) -> File:
    """A file of the organization and, if one is named, of a folder. Raises NotFound."""
    row = tx.execute(_ONE, {"of_organization": organization, "of_file": file_id}).first()
    if row is None or (folder_id is not None and row.folder_id != folder_id):
        raise NotFound("FileMetadata", file_id)
    return from_row(row)


def find(tx: Tx, file_id: FileId) -> File | None:
    """A file of any organization, for the processing; None when it was deleted."""
    row = tx.execute(_ANYBODYS, {"of_file": file_id}).first()
    return None if row is None else from_row(row)


def select(tx: Tx, organization: OrganizationId, folder_id: FolderId, page: Page) -> list[File]:
    """The files of a folder on a page; none for an unknown folder."""
    bound = {"of_organization": organization, "of_folder": folder_id}
    rows = paging.page(tx, _OF_FOLDER, files, page, bound, within={"folder_id": folder_id})
    return [from_row(row) for row in rows]


_COMPLETED = _PRESENT.where(
    files.c.folder_id == sa.bindparam("of_folder"), files.c.status == FileStatus.completed.value
).order_by(files.c.created_at.desc(), files.c.id.desc())


def completed(tx: Tx, folder_id: FolderId) -> list[File]:
    """All files of a folder whose text is there, the newest first."""
    return [from_row(row) for row in tx.execute(_COMPLETED, {"of_folder": folder_id})]


_UNFINISHED = (
    _PRESENT.where(
        files.c.folder_id.in_(sa.bindparam("folder_ids", expanding=True)),
        files.c.status.in_((FileStatus.pending.value, FileStatus.parsing.value, FileStatus.embedding.value)),
    )
    .order_by(files.c.created_at, files.c.id)
    .limit(1)
)


def first_unfinished(tx: Tx, folder_ids: Sequence[FolderId]) -> File | None:
    """The oldest file of these folders that is being processed."""
    row = tx.execute(_UNFINISHED, {"folder_ids": list(folder_ids)}).first() if folder_ids else None
    return None if row is None else from_row(row)


def with_original_name(tx: Tx, folder_id: FolderId, name: str) -> File | None:
    """The newest file that was uploaded under this name."""
    row = tx.execute(_ORIGINALS.limit(1), {"of_folder": folder_id, "of_name": name}).first()
    return None if row is None else from_row(row)


def named(tx: Tx, folder_id: FolderId, name: str) -> File | None:
    """The file of this name, if there is one."""
    row = tx.execute(_NAMED, {"of_folder": folder_id, "of_name": name}).first()
    return None if row is None else from_row(row)


_TAKEN = sa.select(files.c.name).where(files.c.removed.is_(False), files.c.folder_id == sa.bindparam("of_folder"))
_TAKEN_ORIGINALS = _TAKEN.where(
    (files.c.original_name == sa.bindparam("of_name")) | (files.c.name == sa.bindparam("of_name"))
)


def names_taken(tx: Tx, folder_id: FolderId, name: str) -> set[str]:
    """Names of files that were uploaded under this name, or have it."""
    return set(tx.execute(_TAKEN_ORIGINALS, {"of_folder": folder_id, "of_name": name}).scalars())


_UNEMBEDDED = (
    sa.select(search_items.c.thread, sa.func.count())
    .where(search_items.c.thread.in_(sa.bindparam("ids", expanding=True)), search_items.c.model.is_not(None))
    .group_by(search_items.c.thread)
)


def embedded_since(tx: Tx, ids: Sequence[FileId]) -> dict[str, int]:
    """Of completed files that lacked vectors, the number of passages that have one now."""
    return {row[0]: int(row[1]) for row in tx.execute(_UNEMBEDDED, {"ids": list(ids)})} if ids else {}


# --- processing -------------------------------------------------------------------------------------------------------

_CHANGE = sa.update(files).where(files.c.id == sa.bindparam("of_file"), files.c.removed.is_(False))
_WAITING = (
    sa.select(files.c.organization_id, sa.func.min(files.c.updated_at))
    .where(
        files.c.status.in_(sa.bindparam("statuses", expanding=True)),
        files.c.removed.is_(False),
        files.c.id.not_in(sa.bindparam("busy", expanding=True)),
    )
    .group_by(files.c.organization_id)
)
_NEXT = (
    _PRESENT.where(
        files.c.status.in_(sa.bindparam("statuses", expanding=True)),
        files.c.organization_id == sa.bindparam("of_organization"),
        files.c.id.not_in(sa.bindparam("busy", expanding=True)),
    )
    .order_by(files.c.updated_at, files.c.id)
    .limit(1)
)


def change(tx: Tx, file_id: FileId, values: Mapping[str, Any], now: Micros) -> bool:
    """Changes columns of a file; False when it was deleted."""
    return tx.execute(_CHANGE.values({**values, "updated_at": now}), {"of_file": file_id}).rowcount == 1


def waiting(tx: Tx, statuses: Collection[FileStatus], busy: Collection[FileId] = ()) -> dict[str, Micros]:
    """Organizations with files of these states, and since when the first of them waits."""
    bound = {"statuses": [each.value for each in statuses], "busy": sorted(busy)}
    return {row[0]: row[1] for row in tx.execute(_WAITING, bound)}


def next_of(tx: Tx, organization: str, statuses: Collection[FileStatus], busy: Collection[FileId] = ()) -> File | None:
    """The file of an organization that waits longest."""
    bound = {"statuses": [each.value for each in statuses], "busy": sorted(busy), "of_organization": organization}
    row = tx.execute(_NEXT, bound).first()
    return None if row is None else from_row(row)


_UNREAD = sa.select(files.c.id).where(
    files.c.id.in_(sa.bindparam("ids", expanding=True)),
    files.c.status.in_((FileStatus.pending.value, FileStatus.parsing.value)),
    files.c.removed.is_(False),
)


def unread(tx: Tx, ids: Sequence[str]) -> set[str]:
    """Those of the files whose upload is still to be read."""
    return set(tx.execute(_UNREAD, {"ids": list(ids)}).scalars()) if ids else set()


_UNREAD_OF = sa.select(files.c.id).where(
    files.c.folder_id == sa.bindparam("of_folder"),
    files.c.status.in_((FileStatus.pending.value, FileStatus.parsing.value)),
    files.c.removed.is_(False),
)


def unread_of(tx: Tx, folder_id: FolderId) -> list[FileId]:
    """The files of a folder whose upload is still to be read."""
    return [FileId(each) for each in tx.execute(_UNREAD_OF.order_by(files.c.id), {"of_folder": folder_id}).scalars()]


_CHUNK_SIZE = sa.select(folders.c.embedding_chunk_size).where(folders.c.id == sa.bindparam("of_folder"))


def chunk_size(tx: Tx, folder_id: FolderId) -> int:
    """Tokens of a passage in this folder, at most."""
    return int(tx.execute(_CHUNK_SIZE, {"of_folder": folder_id}).scalar_one())
