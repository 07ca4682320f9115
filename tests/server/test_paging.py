"""Small pure things: cutting a page, and telling clients apart."""

from dataclasses import dataclass

import pytest
from starlette.datastructures import Headers

from kelpie.core.paging import PAGE_BYTES_MAX, Page
from kelpie.server.http.headers.sdk_version import is_v1
from kelpie.server.http.paging import LIMIT_MAX, cut, page_of
from kelpie.server.http.times import date, timestamp


@dataclass
class Item:
    id: str


ITEMS = [Item(letter) for letter in "abcd"]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (Page(descending=False), "abcd"),
        (Page(), "dcba"),
        (Page(limit=2), "dc"),
        (Page(limit=None, after="c"), "ba"),
        (Page(before="b"), "dc"),
        (Page(1, before="b"), "c"),
        (Page(1, after="d", before="b"), "c"),
        (Page(1, after="d", before="a"), "c"),
        (Page(descending=False, after="a", before="d"), "bc"),
        (Page(after="unknown", limit=1), "d"),
        (Page(descending=False, after="d", before="a"), ""),
    ],
)
def test_cursors_follow_the_order(page: Page, found: str) -> None:
    assert "".join(item.id for item in cut(ITEMS, page)) == found


def test_no_limit_is_still_bounded() -> None:
    assert page_of(None, None, 0, "asc").limit == LIMIT_MAX
    assert page_of("b", "a", 3, "desc") == Page(3, "a", "b", True, bytes_max=PAGE_BYTES_MAX)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-Stainless-Package-Version": "1.12.1", "User-Agent": "anything"}, True),
        ({}, True),
        ({"User-Agent": "letta-client/1.12.1"}, True),
        ({"User-Agent": "@letta-ai/letta-client/1.2.0"}, True),
        ({"User-Agent": "letta-client/0.1.9"}, False),
        ({"User-Agent": "curl/8.0"}, False),
        ({"User-Agent": "python-httpx"}, False),
    ],
)
def test_which_clients_count_as_sdk_v1(headers: dict[str, str], expected: bool) -> None:
    assert is_v1(Headers(headers)) is expected


def test_times_on_the_wire() -> None:
    assert timestamp(1_700_000_000_123_456) == "2023-11-14T22:13:20.123456Z"
    assert timestamp(0) == "1970-01-01T00:00:00Z"
    assert timestamp(None) is None
    assert date(1_700_000_000_999_999) == "2023-11-14T22:13:20+00:00"
