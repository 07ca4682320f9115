"""Cursor paging: the requested slice of an ordered list."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """`after` and `before` are ids and follow the sort order; `limit` None means no limit."""

    limit: int | None = 50
    after: str | None = None
    before: str | None = None
    descending: bool = True
    order_by: str = "created_at"
