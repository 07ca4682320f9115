"""Rows of a checkpoint, read from its JSON and checked against the columns of their table, value by value.

A correct checksum is not enough to trust a value. Anything invalid raises InvalidInput with its location.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import JSON, Boolean, Column, Float, Integer, Table

from kelpie.core.errors import InvalidInput
from kelpie.core.ids import Id
from kelpie.core.json_limits import METADATA
from kelpie.core.time import from_datetime
from kelpie.storage.rows.checksums import ChecksummedJson

DEPTH_MAX = 64
WHOLE_MAX = 2**63 - 1
COUNT_MAX = 2**53  # limit of counters: none gets this far, and there is room above it

_JSON = (JSON, ChecksummedJson)
_COUNTS = ("seq", "version", "seen")
_TIMES = ("_at", "_from", "_until")
_DAY = timedelta(days=1)  # so that no time zone leads out of the years there are
_FIRST, _LAST = (from_datetime(each) for each in (datetime.min + _DAY, datetime.max - _DAY))


def columns_of(table: Table, *without: str) -> tuple[str, ...]:
    """The names of a table's columns except these, as plain texts: a document has no other keys."""
    return tuple(str(name) for name in table.c.keys() if name not in without)  # noqa: SIM118


def taken(names: Sequence[str], rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Rows in the form of a document."""
    return [dict(zip(names, each, strict=True)) for each in rows]


def section(memory: Mapping[str, Any], name: str) -> list[Any]:
    """A list of the document. Raises InvalidInput."""
    found = memory.get(name)
    if not isinstance(found, list):
        raise InvalidInput(f"memory.{name}", "must be a list")
    return cast("list[Any]", found)


def row(table: Table, data: Any, where: str, columns: Iterable[str] | None = None) -> dict[str, Any]:
    """One row with exactly these columns, or all of the table's. Raises InvalidInput."""
    names = columns_of(table) if columns is None else tuple(columns)
    values = members(data, where, names)
    for name in names:
        _check(table.c[name], values[name], f"{where}.{name}")
    return values


def members(data: Any, where: str, names: Iterable[str]) -> dict[str, Any]:
    """An object with exactly these members. Raises InvalidInput."""
    if not isinstance(data, dict):
        raise InvalidInput(where, "must be an object")
    values, wanted = cast("dict[str, Any]", data), set(names)
    if missing := sorted(wanted - set(values)):
        raise InvalidInput(f"{where}.{missing[0]}", "is missing")
    if unknown := sorted(set(values) - wanted):
        raise InvalidInput(f"{where}.{unknown[0][:80]}", "is an unknown field")
    return values


def identifier(kind: type[Id], value: Any, where: str) -> str:
    """An id of this kind. Raises InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput(where, "must be an id")
    kind.parse(value)
    return value


def texts(value: Any, where: str) -> list[str]:
    """A list of texts. Raises InvalidInput."""
    found = cast("list[Any]", value) if isinstance(value, list) else None
    if found is None or not all(isinstance(each, str) for each in found):
        raise InvalidInput(where, "must be a list of texts")
    return found


def distinct(rows: Iterable[Mapping[str, Any]], key: Callable[[Mapping[str, Any]], Any], where: str) -> None:
    """Raises InvalidInput when two have the same key."""
    seen: set[Any] = set()
    for each in rows:
        if (found := key(each)) in seen:
            raise InvalidInput(where, f"contains {str(found)[:80]} twice")
        seen.add(found)


def _check(column: Column[Any], value: Any, where: str) -> None:
    if value is None:
        if not column.nullable and not isinstance(column.type, _JSON):
            raise InvalidInput(where, "must not be null")
    elif isinstance(column.type, _JSON):
        plain(value, where)
        _check_size(column.name, value, where)
    elif isinstance(column.type, Boolean):
        _require(isinstance(value, bool), where, "true or false")
    elif isinstance(column.type, Float):
        _require(type(value) in (int, float), where, "a number")
    elif isinstance(column.type, Integer):
        _check_whole(column.name, value, where)
    else:
        _require(isinstance(value, str) and "\0" not in value, where, "text without NUL characters")


def _check_size(name: str, value: Any, where: str) -> None:
    if name != "metadata":
        return
    try:
        METADATA.check(value)
    except ValueError as error:
        raise InvalidInput(where, str(error)) from None


def _check_whole(name: str, value: Any, where: str) -> None:
    _require(type(value) is int and abs(value) <= WHOLE_MAX, where, "a whole number")
    if name in _COUNTS:
        _require(0 <= value <= COUNT_MAX, where, f"from 0 to {COUNT_MAX}")
    elif name.endswith(_TIMES):
        _require(_FIRST <= value <= _LAST, where, "a time in microseconds since 1970, in the years from 1 to 9999")


def _require(holds: bool, where: str, wanted: str) -> None:
    if not holds:
        raise InvalidInput(where, f"must be {wanted}")


def plain(value: Any, where: str, depth: int = 0) -> None:
    """JSON that any database can store and any client can write again. Raises InvalidInput."""
    if depth > DEPTH_MAX:
        raise InvalidInput(where, f"is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, str):
        _require("\0" not in value, where, "text without NUL characters")
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            plain(item, where, depth + 1)
    elif isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            plain(name, where, depth + 1)
            plain(item, where, depth + 1)
