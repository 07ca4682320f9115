"""Substring search. Text from clients is escaped: `%` and `_` mean themselves.

Case is ignored as far as the database knows letters: SQLite's are those of ASCII. The database folds both sides, never
Python, which knows more letters and would then look for text that no column can contain.
"""

from typing import Any

from sqlalchemy import ColumnElement, bindparam, func


def inside(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """The condition that the text contains a part; the parameter `name` is its `pattern`."""
    return func.lower(column).like(func.lower(bindparam(name)), escape="\\")


def holds(column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    """The same, for this very part."""
    return func.lower(column).like(func.lower(pattern(part)), escape="\\")


def pattern(part: str) -> str:
    escaped = part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
