"""The kinds of value JSON has, by the names JSON schema gives them."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def named(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds a schema names; none of them means that it allows all."""
    kind: Any = schema.get("type")
    if isinstance(kind, str):
        return (kind,)
    return tuple(one for one in cast("list[Any]", kind) if isinstance(one, str)) if isinstance(kind, list) else ()


def mapping(value: Any) -> Mapping[str, Any]:
    """The schema's object; empty for any other value."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def listed(value: Any) -> Sequence[Any]:
    """The schema's list; empty for any other value."""
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def holds(value: Any, kind: str) -> bool:
    """True if the value is of the kind; true and false are no numbers, and 5.0 is a whole number."""
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "null":
            return value is None
        case _:
            return True


def same(one: Any, other: Any) -> bool:
    """True if two values are the same JSON: 1 and true are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
