"""Values with all of their fields filled in: no field has its default, and no two fields have the same value.

A value that was stored and comes back equal has lost no field and mixed up no two of them.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from kelpie.core.ids import Id

T = TypeVar("T")


def filled(kind: type[T], number: int, /, **given: Any) -> T:
    """The value of this number: those of different numbers have no field in common but `given` and what has few values.

    Raises ValueError for a field that would have its default.
    """
    hints = get_type_hints(kind)
    made: dict[str, Any] = {}
    for place, field in enumerate(fields(kind)):  # type: ignore[arg-type]
        default = _default(field)
        value = given.get(field.name, MISSING)
        if value is MISSING:
            value = _value(hints[field.name], 100 * number + place, field.name, default)
        if value == default and field.name not in given:
            raise ValueError(f"{kind.__name__}.{field.name} has its default, so nobody could see that it was lost")
        made[field.name] = value
    return kind(**made)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _value(hint: Any, number: int, name: str, default: Any = MISSING) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return f"{name} {number}"
    if origin in (Union, UnionType):
        return _value(next(each for each in inner if each is not NoneType), number, name, default)
    if origin is Literal:
        return _other(list(inner), number, default)
    if origin is tuple:
        return tuple(_value(inner[0], 10 * number + each, name) for each in range(2))
    if origin in (Mapping, dict):
        kinds = inner[1]
        return {f"{name} {each}": _value(kinds, 10 * number + each, name) for each in range(2)}
    if isinstance(hint, type) and is_dataclass(hint):
        return filled(hint, number)
    if issubclass(hint, bool):
        return True if default is MISSING else not default
    if issubclass(hint, Enum):
        return _other(list(hint), number, default)
    if issubclass(hint, Id):
        return hint(f"{hint.prefix}-00000000-0000-4000-8000-{number:012}")
    if issubclass(hint, (int, float)):
        return hint(1000 + number)
    told = f"{name} {number}"
    return told.encode() if issubclass(hint, bytes) else told


def _other(members: list[Any], number: int, default: Any) -> Any:
    others = [each for each in members if each != default]
    return others[number % len(others)]
