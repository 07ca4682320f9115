"""Looking for a part of a text. What people type is escaped: `%` and `_` mean themselves.

Case does not matter as far as the database knows letters: SQLite's are those of ASCII. Both sides are folded by the
database, never one of them by Python, which knows more letters and would then look for what no column can show.
"""

from typing import Any

from sqlalchemy import ColumnElement, bindparam, func


def inside(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """That the text has a part in it; the parameter `name` is its `pattern`."""
    return func.lower(column).like(func.lower(bindparam(name)), escape="\\")


def holds(column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    """The same, for this very part."""
    return func.lower(column).like(func.lower(pattern(part)), escape="\\")


def pattern(part: str) -> str:
    escaped = part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
