"""Looking for a part of a text. What people type is escaped: `%` and `_` mean themselves, and case does not matter."""

from typing import Any

from sqlalchemy import ColumnElement, bindparam, func


def inside(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """That the text has a part in it; the parameter `name` is its `pattern`."""
    return func.lower(column).like(func.lower(bindparam(name)), escape="\\")


def pattern(part: str) -> str:
    escaped = part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
