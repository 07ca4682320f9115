"""Values between JSON and Python, in a cell: what goes into a function as its annotations want it, and what comes out.

It runs beside foreign code and is believed by nobody. Nothing is imported before it is needed, because most tools need
little.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import dataclasses
    import enum
    import types
    import typing
    from typing import Any


class Late:
    """A module that is imported when something of it is wanted."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(__import__(self._name), attribute)


if not TYPE_CHECKING:
    dataclasses, enum, types, typing = map(Late, ("dataclasses", "enum", "types", "typing"))

DEPTH_MAX = 64


def fitted(kind: Any, value: Any) -> Any:
    """A JSON value as the type that an annotation names; one that means nothing to us leaves it as it is."""
    origin, inner, given = typing.get_origin(kind), typing.get_args(kind), _class_of(value)
    if origin is typing.Annotated:
        return fitted(inner[0], value)
    if origin in (typing.Union, types.UnionType):
        return _first_fit([one for one in inner if one is not type(None)], value)
    if origin in (list, tuple, set, frozenset) and given is list:
        return _items(origin, inner, value)
    if origin is dict and given is dict and len(inner) == 2:
        return _entries(inner, value)
    if not isinstance(kind, type):
        return value
    return _instance(kind, value)


def _class_of(value: Any) -> Any:
    return value.__class__


def _any(value: Any) -> Any:
    """The same; `typing.cast` would have to be imported."""
    return value


def _first_fit(kinds: list[Any], value: Any) -> Any:
    if value is None:
        return None
    for kind in kinds:
        try:
            made = fitted(kind, value)
        except (TypeError, ValueError, KeyError):
            continue
        if not isinstance(kind, type) or isinstance(made, kind):
            return made
    return value


def _entries(inner: tuple[Any, ...], value: dict[str, Any]) -> Any:
    made: dict[Any, Any] = {fitted(inner[0], key): fitted(inner[1], item) for key, item in value.items()}
    return made


def _items(origin: Any, inner: tuple[Any, ...], value: list[Any]) -> Any:
    kinds = [one for one in inner if one is not Ellipsis]
    if origin is not tuple or Ellipsis in inner or len(kinds) != len(value):
        kinds = (kinds[:1] or [None]) * len(value)
    return _any(origin)([fitted(kind, item) for kind, item in zip(kinds, value, strict=True)])


def _instance(kind: Any, value: Any) -> Any:
    """The value as an instance of a class. Raises what the class has against it."""
    given = _class_of(value)
    if given is dict and hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if given is dict and hasattr(kind, "__dataclass_fields__"):
        hints = typing.get_type_hints(kind)
        return kind(**{key: fitted(hints.get(key), item) for key, item in value.items()})
    if issubclass(kind, enum.Enum):
        return kind(value)
    how = _READ.get((f"{kind.__module__}.{kind.__qualname__}", given.__name__))
    return value if how is None else getattr(kind, how)(value) if how else kind(value)


_READ: dict[tuple[str, str], str] = {  # the class wanted, the class that JSON gave, and what makes the one of the other
    ("builtins.set", "list"): "",
    ("builtins.frozenset", "list"): "",
    ("builtins.tuple", "list"): "",
    ("builtins.float", "int"): "",
    ("builtins.int", "str"): "",  # a key of an object
    ("datetime.datetime", "str"): "fromisoformat",
    ("datetime.date", "str"): "fromisoformat",
    ("datetime.time", "str"): "fromisoformat",
    ("uuid.UUID", "str"): "",
    ("decimal.Decimal", "str"): "",
    ("decimal.Decimal", "int"): "",
    ("decimal.Decimal", "float"): "",
}


def plain(value: Any, depth: int) -> Any:
    """A value as JSON can hold it; what JSON has no form for is told as text."""
    if depth > DEPTH_MAX:
        raise ValueError(f"the result is nested more than {DEPTH_MAX} levels deep")
    match value:
        case None | bool():
            return value
        case _ if "enum" in sys.modules and isinstance(value, enum.Enum):  # else nobody can have made one
            return plain(value.value, depth + 1)
        case str():
            return sound(str(value))
        case int():
            return int(value)
        case float():
            return value if value - value == 0 else str(value)
        case dict():
            entries: dict[Any, Any] = _any(value)
            return {sound(str(key)): plain(item, depth + 1) for key, item in entries.items()}
        case list() | tuple() | set() | frozenset():
            items: list[Any] = _any(value)
            return [plain(item, depth + 1) for item in items]
        case _ if hasattr(value, "model_dump"):
            return plain(value.model_dump(mode="json"), depth + 1)
        case _ if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
            return plain(dataclasses.asdict(value), depth + 1)
        case _:
            return sound(str(value))


def sound(text: str) -> str:
    """The text without halves of characters, which no reader of JSON takes."""
    return text.encode("utf-8", "replace").decode()
