"""Pages of a table must be the slices of its sorted list, whatever the cursors, order and missing values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import BigInteger, Column, MetaData, Table, Text, create_engine, insert, select

from kelpie.core.errors import InvalidInput
from kelpie.core.paging import Page
from kelpie.storage.rows.paging import Paging
from kelpie.storage.rows.paging import page as page_rows

items = Table(
    "items",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger),
)
everything = select(items.c.id)

Rows = list[tuple[int, int | None]]


def page_of(rows: Rows, page: Page) -> list[str]:
    engine = create_engine("sqlite://")
    items.create(engine)
    with engine.begin() as tx:
        for number, (created, seen) in enumerate(rows):
            tx.execute(insert(items), {"id": f"i{number}", "created_at": created, "seen_at": seen})
        return [row.id for row in page_rows(tx, everything, items, page, within={})]


def ordered(rows: Rows, order_by: str, descending: bool) -> list[str]:
    """The whole list by plain Python: by value, then id; rows without a value last."""
    values = {f"i{n}": created if order_by == "created_at" else seen for n, (created, seen) in enumerate(rows)}
    known = sorted((v, k) for k, v in values.items() if v is not None)
    empty = sorted(k for k, v in values.items() if v is None)
    names = [k for _, k in known]
    return names[::-1] + empty[::-1] if descending else names + empty


rows_of_items = st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3)), min_size=1, max_size=9)


@given(rows_of_items, st.sampled_from(["created_at", "seen_at"]), st.booleans(), st.integers(0, 8), st.data())
def test_a_page_is_a_slice_of_the_sorted_list(
    rows: Rows, order_by: str, descending: bool, limit: int, data: st.DataObject
) -> None:
    whole = ordered(rows, order_by, descending)
    cursors = st.none() | st.integers(0, len(whole) - 1)
    first, last = data.draw(cursors), data.draw(cursors)
    if first is not None and last is not None and last < first:
        first, last = last, first
    page = Page(
        limit,
        whole[first] if first is not None else None,
        whole[last] if last is not None else None,
        descending,
        order_by,
    )
    inside = whole[first + 1 if first is not None else 0 : last if last is not None else len(whole)]
    touching_before = last is not None and first is None
    expected = (inside[-limit:] if limit else []) if touching_before else inside[:limit]
    assert page_of(rows, page) == expected


def test_paging_through_gives_every_row_once() -> None:
    rows: Rows = [(n // 3, None) for n in range(10)]
    seen: list[str] = []
    while found := page_of(rows, Page(limit=3, after=seen[-1] if seen else None)):
        seen += found
    assert seen == ordered(rows, "created_at", True)


def test_an_unknown_cursor_is_ignored() -> None:
    assert page_of([(1, None), (2, None)], Page(limit=1, after="nobody")) == ["i1"]
    assert page_of([(1, None), (2, None)], Page(limit=1, before="nobody")) == ["i1"]


def test_no_limit_gives_everything() -> None:
    assert len(page_of([(n, None) for n in range(60)], Page(limit=None))) == 60


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(InvalidInput, match="order_by"):
        page_of([(1, None)], Page(order_by="name"))
    with create_engine("sqlite://").begin() as tx, pytest.raises(InvalidInput, match="created_at"):
        Paging(items, "created_at").rows(tx, everything, Page(order_by="seen_at"), within={})
    with pytest.raises(InvalidInput, match="limit"):
        page_of([(1, None)], Page(limit=-1))
    with pytest.raises(InvalidInput, match="before"):
        page_of([(1, None), (2, None)], Page(after="i1", before="i0", descending=False))
