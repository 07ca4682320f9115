"""The text of files as rows: passages that follow each other without a gap. Only what is indexed can be found."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from kelpie.core.files import text_lines
from kelpie.core.files.files import File, FilePassage
from kelpie.core.ids import FileId, FolderId, OrganizationId, PassageId
from kelpie.search import items
from kelpie.search.items import Item
from kelpie.search.vector_rows import Vector
from kelpie.storage.rows.checksums import checksum, report
from kelpie.storage.tables import file_passages
from kelpie.world.database import Tx

LOST = "[A part of this file is damaged on the disk and cannot be shown.]\n"

_P = file_passages.c
_ORDERED = sa.select(file_passages).where(_P.file_id == sa.bindparam("of_file")).order_by(_P.position)
_FROM = _ORDERED.where(_P.position >= sa.bindparam("start")).limit(sa.bindparam("most", type_=sa.Integer))
_INSERT = sa.insert(file_passages)
_DROP = sa.delete(file_passages).where(_P.id.in_(sa.bindparam("ids", expanding=True)))
_SOME = sa.select(_P.id).where(_P.file_id == sa.bindparam("of_file")).limit(sa.bindparam("most", type_=sa.Integer))
_MANY = sa.select(file_passages).where(_P.id.in_(sa.bindparam("ids", expanding=True)))
_LINE = sa.select(sa.func.max(_P.position)).where(
    _P.file_id == sa.bindparam("of_file"), _P.line <= sa.bindparam("of_line")
)


def from_row(row: sa.Row[Any]) -> FilePassage:
    """The passage; instead of a damaged text a notice."""
    lost = row.checksum != checksum(row.text)
    if lost:
        report("file_passage", row.id)
    return FilePassage(
        PassageId(row.id), FileId(row.file_id), row.position, LOST if lost else row.text, row.line, row.mid_line
    )


def insert_many(tx: Tx, organization: OrganizationId, made: Sequence[FilePassage]) -> None:
    """Writes passages of a file that cannot be found yet."""
    rows = [
        {
            "id": each.id,
            "file_id": each.file_id,
            "organization_id": organization,
            "position": each.position,
            "text": each.text,
            "line": each.line,
            "mid_line": each.mid_line,
            "checksum": checksum(each.text),
        }
        for each in made
    ]
    if rows:
        tx.execute(_INSERT, rows)


def index_many(
    tx: Tx, folder_id: FolderId, made: Sequence[FilePassage], vectors: Mapping[str, tuple[Vector, ...]]
) -> None:
    """Makes passages searchable in their folder: by their words, and by meaning if their text has vectors."""
    found = [Item(each.id, each.text, vectors.get(each.text, ()), each.file_id, each.position) for each in made]
    items.put_many(tx, "file_passage", folder_id, found)


def some(tx: Tx, file_id: FileId, start: int, most: int) -> list[FilePassage]:
    """The passages of a file from a position on, at most so many."""
    return [from_row(row) for row in tx.execute(_FROM, {"of_file": file_id, "start": start, "most": most})]


def pages(tx: Tx, file_id: FileId, rows: int = 200) -> Iterator[list[FilePassage]]:
    """All passages of a file, in pieces."""
    start = 0
    while found := some(tx, file_id, start, rows):
        yield found
        start = found[-1].position + 1


def text(tx: Tx, file_id: FileId, chars_max: int | None = None) -> str:
    """The text of a file, or as much of its beginning."""
    parts: list[str] = []
    size = 0
    for page in pages(tx, file_id):
        parts += [each.text for each in page]
        size += sum(len(each.text) for each in page)
        if chars_max is not None and size >= chars_max:
            break
    return "".join(parts)


def drop_some(tx: Tx, file_id: FileId, most: int, *, indexed: bool = True) -> int:
    """Deletes at most so many passages of a file, with their entries in the search; returns their number."""
    found = list(tx.execute(_SOME, {"of_file": file_id, "most": most}).scalars())
    if found:
        if indexed:
            items.remove_many(tx, "file_passage", found)
        tx.execute(_DROP, {"ids": found})
    return len(found)


def texts(tx: Tx, ids: Sequence[str]) -> dict[str, str]:
    """The texts of these passages; missing and damaged ones are left out."""
    rows = tx.execute(_MANY, {"ids": list(ids)}) if ids else ()
    return {row.id: row.text for row in rows if row.checksum == checksum(row.text)}


def visible(tx: Tx, file: File, start_line: int | None, end_line: int | None, chars_max: int) -> str:
    """The text that an agent sees of a file: numbered lines, cut where they are too long together."""
    if not file.lines:
        return ""
    first = start_line or 1
    position = tx.execute(_LINE, {"of_file": file.id, "of_line": first}).scalar()
    reader = text_lines.LineReader(first, end_line, chars_max)
    start = int(position or 0)
    while found := some(tx, file.id, start, 32):
        for passage in found:
            reader.take(passage)
        if reader.done:
            break
        start = found[-1].position + 1
    return reader.shown(file.lines, ranged=start_line is not None or end_line is not None)
