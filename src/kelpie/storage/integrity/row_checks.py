"""Check of rows with checksums, a page at a time: their number, and those that do not match.

It changes nothing and reports no row's content. Code that reads a row for use checks it itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import sqlalchemy as sa

from kelpie.search.tables import search_items, search_postings, search_segments, search_vectors
from kelpie.storage.blocks import history as block_history
from kelpie.storage.blocks import rows as block_rows
from kelpie.storage.conversations import message_rows
from kelpie.storage.integrity import search_index_checks
from kelpie.storage.rows.checksums import checksum
from kelpie.storage.tables import block_history as versions
from kelpie.storage.tables import blocks, file_passages, messages, passages, template_versions
from kelpie.world.database import Tx

PAGE = 500
LARGE_PAGE = 16  # of rows that may have a megabyte each

_RESTORE = "It is omitted from searches and prompts and marked in lists; restore it from a backup, or delete it."
_UNFOUND = "Some texts cannot be found by some of their words; restore a backup, or store the texts again."
_WRONG = "Restore a backup. If the disk is healthy, this is a bug in Kelpie: please report it."


@dataclass(frozen=True, slots=True)
class Kind:
    """Rows of one table: how a page of them is read and checked, and the remedy for damaged ones."""

    name: str
    statement: sa.Select[Any]
    keys: tuple[str, ...]
    whole: Callable[[Any], bool]
    remedy: str
    page: int = PAGE


@dataclass(frozen=True, slots=True)
class RowCheckResult:
    """Result for one page; `last` is where the next one starts, None after the last."""

    rows: int
    damaged: list[str]
    last: tuple[Any, ...] | None


def _pages(table: sa.Table, *keys: str) -> sa.Select[Any]:
    columns = [table.c[key] for key in keys]
    after = sa.tuple_(*columns) > sa.tuple_(*(sa.bindparam(f"after_{key}", type_=table.c[key].type) for key in keys))
    first = sa.bindparam("from_start", type_=sa.Boolean)
    return sa.select(table).where(sa.or_(first, after)).order_by(*columns).limit(sa.bindparam("most"))


def _passage(row: Any) -> bool:
    return row.checksum in (None, checksum(row.text, row.tags, row.metadata))


KINDS = (
    Kind("message", _pages(messages, "id"), ("id",), lambda row: message_rows.is_whole(row._mapping), _RESTORE),
    Kind("passage", _pages(passages, "id"), ("id",), _passage, _RESTORE),
    Kind(
        "passage of a file",
        _pages(file_passages, "id"),
        ("id",),
        lambda row: row.checksum == checksum(row.text),
        "Agents see a notice in its place; delete the file and upload it again.",
    ),
    Kind(
        "block",
        _pages(blocks, "id"),
        ("id",),
        lambda row: row.checksum in (None, block_rows.sum_of(row)),
        "Give it a new value, or roll it back: `kelpie blocks rollback`.",
    ),
    Kind(
        "version of a block",
        _pages(versions, "block_id", "version"),
        ("block_id", "version"),
        block_history.is_whole,
        "This version cannot be shown or restored; the other versions of the block can.",
    ),
    Kind(
        "version of a template",
        _pages(template_versions, "id"),
        ("id",),
        lambda row: row.checksum == checksum(row.document),
        "No agents can be made from this version; save another one from an agent, or restore a backup.",
        LARGE_PAGE,
    ),
    Kind(
        "vector",
        _pages(search_vectors, "item", "model"),
        ("item", "model"),
        lambda row: crc32(row.vector) == row.checksum,
        "Its text can be found only by words; store it again to make it searchable by meaning.",
    ),
    Kind(
        "text index entry",
        _pages(search_items, "id"),
        ("id",),
        lambda row: not row.loose or crc32(row.words) == row.checksum,
        "Its text cannot be found by words; store it again, or restore a backup.",
    ),
    Kind(
        "text index segment",
        _pages(search_segments, "id"),
        ("id",),
        lambda row: crc32(row.members) == row.checksum,
        _UNFOUND,
        LARGE_PAGE,
    ),
    Kind(
        "text index postings",
        _pages(search_postings, "place"),
        ("place",),
        lambda row: crc32(row.postings) == row.checksum,
        _UNFOUND,
        LARGE_PAGE,
    ),
)


def look(tx: Tx, kind: Kind, after: tuple[Any, ...] | None) -> RowCheckResult:
    """Checks the page of rows after this key, or the first one."""
    keys = (None,) * len(kind.keys) if after is None else after
    bound = {f"after_{name}": key for name, key in zip(kind.keys, keys, strict=True)}
    rows = tx.execute(kind.statement, {"from_start": after is None, "most": kind.page, **bound}).all()
    found = [tuple(getattr(row, key) for key in kind.keys) for row in rows]
    damaged = [" ".join(map(str, key)) for key, row in zip(found, rows, strict=True) if not kind.whole(row)]
    return RowCheckResult(len(rows), damaged, found[-1] if len(rows) == kind.page else None)


WRONGS = tuple(search_index_checks.WRONGS)
WRONG_REMEDY = _WRONG


def is_known(tx: Tx) -> bool:
    """Checks whether references between rows can be checked in this database."""
    return tx.dialect.name == "sqlite"


def count_wrong(tx: Tx, what: str) -> int:
    """Number of rows with this broken reference, one of `WRONGS`."""
    return int(tx.exec_driver_sql(f"SELECT count(*) FROM ({search_index_checks.WRONGS[what]})").scalar_one())
