"""Folders as rows. A name is used once in an organization."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict, NotFound
from kelpie.core.files.folders import Folder
from kelpie.core.ids import FolderId, OrganizationId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.rows import paging
from kelpie.storage.tables import files, folders
from kelpie.world.database import Tx

WHAT = "Source"  # the word of Letta's error texts, which clients match

_FIELDS = tuple(each.name for each in fields(Folder))
CHANGEABLE = frozenset({"name", "description", "instructions", "metadata", "embedding", "embedding_chunk_size"})

_OURS = sa.select(folders).where(
    folders.c.removed.is_(False), folders.c.organization_id == sa.bindparam("of_organization")
)
_ONE = _OURS.where(folders.c.id == sa.bindparam("of_folder"))
_NAMED = _OURS.where(folders.c.name == sa.bindparam("of_name"))
_MANY = _OURS.where(folders.c.id.in_(sa.bindparam("ids", expanding=True)))
_COUNT = (
    sa.select(sa.func.count())
    .select_from(folders)
    .where(folders.c.removed.is_(False), folders.c.organization_id == sa.bindparam("of_organization"))
)
_INSERT = sa.insert(folders)

require = row_ownership.owned(row_ownership.owner_of(folders).where(folders.c.removed.is_(False)), WHAT)


def from_row(row: sa.Row[Any]) -> Folder:
    """A folder from all of its columns."""
    return Folder(
        id=FolderId(row.id),
        name=row.name,
        created_at=row.created_at,
        updated_at=row.updated_at,
        description=row.description,
        instructions=row.instructions,
        embedding=row.embedding,
        embedding_chunk_size=row.embedding_chunk_size,
        metadata=row.metadata,
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
    )


def insert(tx: Tx, folder: Folder) -> None:
    """Writes a new folder. Raises Conflict when its name is used."""
    if by_name(tx, folder.organization_id, folder.name) is not None:
        raise _used(folder.name)
    try:
        tx.execute(_INSERT, {"removed": False, **{name: getattr(folder, name) for name in _FIELDS}})
    except IntegrityError as error:
        raise _used(folder.name) from error


def _used(name: str) -> Conflict:
    return Conflict(f"A folder with the name '{name}' already exists. Choose another name, or use that folder.")


def get(tx: Tx, organization: OrganizationId, folder_id: FolderId) -> Folder:
    """Raises NotFound."""
    row = tx.execute(_ONE, {"of_organization": organization, "of_folder": folder_id}).first()
    if row is None:
        raise NotFound(WHAT, folder_id)
    return from_row(row)


def by_name(tx: Tx, organization: OrganizationId, name: str) -> Folder | None:
    """The folder of this name, if there is one."""
    row = tx.execute(_NAMED, {"of_organization": organization, "of_name": name}).first()
    return None if row is None else from_row(row)


def get_many(tx: Tx, organization: OrganizationId, ids: Sequence[FolderId]) -> dict[FolderId, Folder]:
    """The folders with these ids; those that do not exist are left out."""
    if not ids:
        return {}
    rows = tx.execute(_MANY, {"of_organization": organization, "ids": list(ids)})
    return {folder.id: folder for folder in map(from_row, rows)}


def count(tx: Tx, organization: OrganizationId) -> int:
    """Number of folders."""
    return int(tx.execute(_COUNT, {"of_organization": organization}).scalar_one())


def select(tx: Tx, organization: OrganizationId, page: Page, name: str | None = None) -> list[Folder]:
    """The folders on a page. Raises NotFound for a cursor that is not of this organization."""
    for cursor in (page.after, page.before):
        if cursor is not None:
            require(tx, organization, cursor)
    statement = _OURS if name is None else _NAMED
    bound = {"of_organization": organization, **({} if name is None else {"of_name": name})}
    rows = paging.page(tx, statement, folders, page, bound, within={"organization_id": organization})
    return [from_row(row) for row in rows]


@lru_cache(maxsize=32)
def _update(names: tuple[str, ...]) -> sa.Update:
    new = {name: sa.bindparam(f"new_{name}", type_=folders.c[name].type) for name in names}
    return sa.update(folders).where(folders.c.id == sa.bindparam("of_folder")).values(new)


def update(
    tx: Tx, organization: OrganizationId, folder_id: FolderId, changes: Mapping[str, Any], now: Micros, by: str
) -> Folder:
    """Changes fields by name. Raises NotFound, and Conflict when the new name is used."""
    require(tx, organization, folder_id)
    columns = {name: value for name, value in changes.items() if name in CHANGEABLE}
    if "name" in columns:
        other = by_name(tx, organization, columns["name"])
        if other is not None and other.id != folder_id:
            raise _used(columns["name"])
    if columns:
        columns |= {"updated_at": now, "last_updated_by_id": by}
        bound = {f"new_{name}": value for name, value in columns.items()}
        try:
            tx.execute(_update(tuple(sorted(columns))), bound | {"of_folder": folder_id})
        except IntegrityError as error:
            raise _used(str(columns.get("name"))) from error
    return get(tx, organization, folder_id)


_SIZES = (
    sa.select(folders.c.id, folders.c.name, sa.func.count(files.c.id), sa.func.coalesce(sa.func.sum(files.c.size), 0))
    .outerjoin(files, (files.c.folder_id == folders.c.id) & files.c.removed.is_(False))
    .where(folders.c.removed.is_(False), folders.c.organization_id == sa.bindparam("of_organization"))
    .group_by(folders.c.id, folders.c.name)
    .order_by(folders.c.name)
)


def sizes(tx: Tx, organization: OrganizationId) -> list[tuple[str, str, int, int]]:
    """Of each folder its id, its name, the number of its files and their bytes."""
    return [(row[0], row[1], int(row[2]), int(row[3])) for row in tx.execute(_SIZES, {"of_organization": organization})]
