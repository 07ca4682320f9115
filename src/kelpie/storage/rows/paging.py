"""Slices of a table in (order column, id) order, for every list that has cursors.

Cursors follow the sort order: `after` is what comes later in the list as it is shown, `before` what comes earlier, and
a page `before` a cursor is the one that touches it. A cursor that names no row is ignored, as Letta's clients expect;
so is one that names a row of another organisation, which would reveal its position in the order.
Rows without a value in the order column come last in either direction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import Column, ColumnElement, Integer, Row, Select, Table, and_, bindparam, or_, select

from kelpie.core.errors import InvalidInput
from kelpie.core.paging import Page
from kelpie.storage.rows.row_bytes import within_bytes
from kelpie.world.database import Tx

_STATEMENTS_MAX = 256
_SHAPES_MAX = 1024  # more than all tables, orders and cursor combinations together

_Position = tuple[int | None, str]


@dataclass(frozen=True, slots=True)
class _Shape:
    """Everything about a page that changes the text of its statement; `null` means that the cursor's row has no
    value."""

    order_by: str
    descending: bool
    after: bool
    after_null: bool
    before: bool
    before_null: bool

    @property
    def backwards(self) -> bool:
        """True if the page is read from the `before` cursor towards the start, and reversed afterwards."""
        return self.before and not self.after


class Paging:
    """Pages of one table, ordered by the columns named here and by no others."""

    def __init__(self, table: Table, *order_columns: str) -> None:
        self._table = table
        self._order_columns = order_columns

    def rows(
        self,
        tx: Tx,
        statement: Select[Any],
        wanted: Page,
        parameters: Mapping[str, Any] | None = None,
        *,
        within: Mapping[str, str],
    ) -> Sequence[Row[Any]]:
        """The result of `page`. Raises InvalidInput as it does, and for an `order_by` that was not named."""
        if wanted.order_by not in self._order_columns:
            raise InvalidInput(
                "order_by", f"'{wanted.order_by[:80]}' is unknown; use one of {', '.join(self._order_columns)}"
            )
        return page(tx, statement, self._table, wanted, parameters, within=within)


def page(
    tx: Tx,
    statement: Select[Any],
    table: Table,
    wanted: Page,
    parameters: Mapping[str, Any] | None = None,
    *,
    within: Mapping[str, str],
) -> Sequence[Row[Any]]:
    """The rows of `statement` (over `table`, without an order of its own) on this page, in the requested order.

    `within` are columns and values that limit which rows may be cursors; empty where all clients see all rows. Raises
    InvalidInput for an unknown `order_by`, a negative `limit`, or a `before` that comes ahead of `after`.
    """
    column = table.c.get(wanted.order_by)
    if column is None or not isinstance(column.type, Integer):
        times = ", ".join(each.name for each in table.c if each.name.endswith("_at"))
        raise InvalidInput("order_by", f"this list cannot be ordered by '{wanted.order_by[:80]}'; use one of {times}")
    if wanted.limit is not None and wanted.limit < 0:
        raise InvalidInput("limit", "must not be negative")
    after = _position(tx, table, wanted.order_by, wanted.after, within)
    before = _position(tx, table, wanted.order_by, wanted.before, within)
    if after and before and _crossed(after, before, wanted.descending):
        raise InvalidInput("before", "comes before `after` in this order; swap the two cursors")
    shape = _Shape(
        wanted.order_by,
        wanted.descending,
        after is not None,
        after is not None and after[0] is None,
        before is not None,
        before is not None and before[0] is None,
    )
    bound = dict(parameters or {})
    if after:
        bound |= {"page_after": after[0], "page_after_id": after[1]}
    if before:
        bound |= {"page_before": before[0], "page_before_id": before[1]}
    if wanted.limit is not None:
        bound["page_limit"] = wanted.limit
    rows = tx.execute(_cut(statement, table, shape, wanted.limit is not None), bound)
    found = within_bytes(rows, wanted.bytes_max)
    return found[::-1] if shape.backwards else found


def known(tx: Tx, table: Table, wanted: Page, within: Mapping[str, str]) -> Page:
    """The page without cursors that name no row, which are ignored: only then `backwards` says how it is read."""
    after, before = (
        None if cursor is None or _position(tx, table, wanted.order_by, cursor, within) is None else cursor
        for cursor in (wanted.after, wanted.before)
    )
    return replace(wanted, after=after, before=before)


def _position(tx: Tx, table: Table, order_by: str, cursor: str | None, within: Mapping[str, str]) -> _Position | None:
    if cursor is None:
        return None
    bound = {f"page_{name}": value for name, value in within.items()}
    row = tx.execute(_position_statement(table, order_by, tuple(within)), {"page_cursor": cursor, **bound}).first()
    return None if row is None else (row[0], cursor)


@lru_cache(maxsize=_SHAPES_MAX)
def _position_statement(table: Table, order_by: str, within: tuple[str, ...]) -> Select[Any]:
    owned = (table.c[name] == bindparam(f"page_{name}") for name in within)
    return select(table.c[order_by]).where(table.c.id == bindparam("page_cursor"), *owned)


@lru_cache(maxsize=_STATEMENTS_MAX)
def _cut(statement: Select[Any], table: Table, shape: _Shape, limited: bool) -> Select[Any]:
    """The statement of a page. Made once where the caller makes its own statement once."""
    where, order = _clauses(table, shape)
    cut = statement.where(*where).order_by(*order)
    return cut.limit(bindparam("page_limit", type_=Integer())) if limited else cut


@lru_cache(maxsize=_SHAPES_MAX)
def _clauses(table: Table, shape: _Shape) -> tuple[list[ColumnElement[bool]], list[ColumnElement[Any]]]:
    column, key = table.c[shape.order_by], table.c.id
    where: list[ColumnElement[bool]] = []
    if shape.after:
        where.append(_past(column, key, "page_after", shape.after_null, shape.descending, forward=True))
    if shape.before:
        where.append(_past(column, key, "page_before", shape.before_null, shape.descending, forward=False))
    down = shape.descending != shape.backwards
    order: list[ColumnElement[Any]] = [column.desc(), key.desc()] if down else [column, key]
    if column.nullable:
        missing = column.is_(None)
        order.insert(0, missing.desc() if shape.backwards else missing)
    return where, order


def _past(
    column: Column[Any], key: Column[Any], name: str, null: bool, descending: bool, *, forward: bool
) -> ColumnElement[bool]:
    """The rows strictly on one side of a cursor."""
    value, cursor = bindparam(name, type_=column.type), bindparam(f"{name}_id", type_=key.type)
    up = forward != descending
    beyond_key = key > cursor if up else key < cursor
    if null:
        tied = and_(column.is_(None), beyond_key)
        return tied if forward else or_(column.is_not(None), tied)
    beyond = or_(column > value if up else column < value, and_(column == value, beyond_key))
    return or_(beyond, column.is_(None)) if forward and column.nullable else beyond


def _crossed(after: _Position, before: _Position, descending: bool) -> bool:
    """Checks whether `before` comes ahead of `after`, so that nothing can lie between them."""
    if (after[0] is None) != (before[0] is None):
        return after[0] is None
    late, early = (after[0] or 0, after[1]), (before[0] or 0, before[1])
    return early > late if descending else early < late
