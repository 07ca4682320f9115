"""Cursor paging: the requested slice of an ordered list."""

from dataclasses import dataclass

PAGE_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Page:
    """`after` and `before` are ids and follow the sort order; `limit` None means no limit.

    A page ends early where its items have more than `bytes_max` bytes together. It has at least one item unless there
    are none, so a client that continues after the last item it got receives them all.
    """

    limit: int | None = 50
    after: str | None = None
    before: str | None = None
    descending: bool = True
    order_by: str = "created_at"
    bytes_max: int | None = None

    @property
    def backwards(self) -> bool:
        """True if the page is read from the `before` cursor towards the start, and reversed afterwards."""
        return self.before is not None and self.after is None
