"""Rows of a result up to a size in bytes, for pages: however large the rows are, a page takes bounded memory."""

from collections.abc import Iterable
from typing import Any, TypeVar

import orjson
from sqlalchemy import Row

_FIXED_BYTES = 8  # of a number, a time or a null

R = TypeVar("R", bound=Row[Any])


def within_bytes(rows: Iterable[R], bytes_max: int | None) -> list[R]:
    """The first rows that have at most this many bytes together, and always the first one. Reads no row beyond the one
    that is too many.
    """
    if bytes_max is None:
        return list(rows)
    found: list[R] = []
    size = 0
    for row in rows:
        size += row_bytes(row)
        if found and size > bytes_max:
            break
        found.append(row)
    return found


def row_bytes(values: Iterable[Any]) -> int:
    """Approximate size of values as JSON."""
    return sum(_bytes(value) for value in values)


def _bytes(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return len(orjson.dumps(value)) if value and isinstance(value, dict | list) else _FIXED_BYTES
