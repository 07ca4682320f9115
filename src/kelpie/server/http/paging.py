"""Cursor paging as the query parameters `before`, `after`, `limit`, `order`; Letta's `limit=0` means everything.

A page ends early where its items are larger than `PAGE_BYTES_MAX` together. The SDKs ask for the next page until they
get an empty one, so they still receive every item.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

from fastapi import Depends, Query

from kelpie.core.errors import InvalidId, NotFound
from kelpie.core.ids import MessageId
from kelpie.core.paging import PAGE_BYTES_MAX, Page

LIMIT_MAX = 10_000

Order = Literal["asc", "desc"]


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=_HasId)

Before = Annotated[str | None, Query(description="Return only items before this id in the requested order.")]
After = Annotated[str | None, Query(description="Return only items after this id in the requested order.")]


def limit_query(default: int, most: int = LIMIT_MAX, least: int = 0) -> Any:
    """A `limit` parameter with its default and its bounds."""
    return Query(default, ge=least, le=most, description="Maximum number of items; 0 for all.")


def page_of(
    before: str | None, after: str | None, limit: int | None, order: Order, order_by: str = "created_at"
) -> Page:
    return Page(limit or LIMIT_MAX, after, before, order == "desc", order_by, PAGE_BYTES_MAX)


def page_query(limit_default: int, order_default: Order = "desc", limit_max: int = LIMIT_MAX) -> Any:
    """A dependency that reads the page from the query."""

    async def page(
        before: Before = None,
        after: After = None,
        limit: int | None = limit_query(limit_default, limit_max),
        order: Order = order_default,
        order_by: Literal["created_at"] = "created_at",
    ) -> Page:
        return page_of(before, after, limit, order, order_by)

    return Annotated[Page, Depends(page)]


if TYPE_CHECKING:
    Page10 = Page50 = Page100 = Page1000 = Page50Ascending = Page100Ascending = Page
else:
    Page10 = page_query(10)
    Page50 = page_query(50)
    Page100 = page_query(100)
    Page1000 = page_query(1000)
    Page50Ascending = page_query(50, "asc")
    Page100Ascending = page_query(100, "asc")


def cut(items: Sequence[Item], page: Page) -> list[Item]:
    """The page of a list in memory, oldest first; one `before` a cursor touches it. A cursor that is not in it is
    ignored."""
    ordered = list(reversed(items)) if page.descending else list(items)
    places = {item.id: place for place, item in enumerate(ordered)}
    first = places[page.after] + 1 if page.after in places else 0
    last = places[page.before] if page.before in places else len(ordered)
    found = ordered[first:last]
    if page.limit is None:
        return found
    return found[-page.limit :] if page.before in places and page.after not in places else found[: page.limit]


def message_cursor(text: str | None) -> MessageId | None:
    """The message that a cursor names. Raises NotFound for an invalid id."""
    try:
        return None if text is None else MessageId.parse(text)
    except InvalidId:
        raise NotFound("Message", text or "") from None
