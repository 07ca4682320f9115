"""The passages of a folder as a list with cursors: file by file, and in each file in the order of its text."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from kelpie.core.files.files import File, FilePassage
from kelpie.core.ids import FolderId, OrganizationId
from kelpie.core.paging import Page
from kelpie.storage.files import files as file_rows
from kelpie.storage.files import passages
from kelpie.storage.rows.row_bytes import within_bytes
from kelpie.storage.tables import file_passages, files
from kelpie.world.database import Tx

_OF_FOLDER = (
    sa.select(file_passages, files.c.created_at)
    .join(files, files.c.id == file_passages.c.file_id)
    .where(
        files.c.folder_id == sa.bindparam("of_folder"),
        files.c.organization_id == sa.bindparam("of_organization"),
        files.c.removed.is_(False),
        files.c.status == "completed",
    )
)
_KEY = (files.c.created_at, files.c.id, file_passages.c.position)
_PLACE = _OF_FOLDER.where(file_passages.c.id == sa.bindparam("of_passage"))
_FILES = sa.select(files).where(files.c.id.in_(sa.bindparam("ids", expanding=True)))

_Place = tuple[int, str, int]


def page_of(tx: Tx, organization: OrganizationId, folder_id: FolderId, page: Page) -> list[tuple[FilePassage, File]]:
    """The passages on a page, each with its file. A cursor that is not in the folder is ignored."""
    bound: dict[str, Any] = {"of_folder": folder_id, "of_organization": organization}
    after, before = _place_of(tx, bound, page.after), _place_of(tx, bound, page.before)
    backwards = before is not None and after is None  # read from the cursor, reversed afterwards
    rows = _rows(tx, bound, page, after, before, down=page.descending != backwards)
    ids = sorted({row.file_id for row in rows})
    owners = {row.id: file_rows.from_row(row) for row in tx.execute(_FILES, {"ids": ids})} if ids else {}
    found = [(passages.from_row(row), owners[row.file_id]) for row in rows]
    return found[::-1] if backwards else found


def _place_of(tx: Tx, bound: Mapping[str, Any], passage_id: str | None) -> _Place | None:
    row = tx.execute(_PLACE, {**bound, "of_passage": passage_id}).first() if passage_id is not None else None
    return None if row is None else (row.created_at, row.file_id, row.position)


def _rows(
    tx: Tx, bound: Mapping[str, Any], page: Page, after: _Place | None, before: _Place | None, *, down: bool
) -> Sequence[sa.Row[Any]]:
    here = sa.tuple_(*_KEY)
    statement = _OF_FOLDER.order_by(*(key.desc() if down else key for key in _KEY))
    for place, below in ((after, page.descending), (before, not page.descending)):
        if place is not None:
            edge = sa.tuple_(*map(sa.literal, place))
            statement = statement.where(here < edge if below else here > edge)
    return within_bytes(tx.execute(statement.limit(page.limit), dict(bound)), page.bytes_max)
