"""Arguments of pydantic's `Field(...)` and of dataclasses' `field(...)`, read from the call as written."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kelpie.tools.schema.constants import NotConstant, constant

_CALLS = frozenset({"Field", "field"})
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_LENGTHS = {  # the argument -> by JSON type, the key it becomes
    "min_length": {"string": "minLength", "array": "minItems", "object": "minProperties"},
    "max_length": {"string": "maxLength", "array": "maxItems", "object": "maxProperties"},
}
_NUMBERS = frozenset({"integer", "number"})


@dataclass(frozen=True, slots=True)
class FieldCall:
    """`default` is a node when the call gives a default that is an expression."""

    has_default: bool = False
    default: ast.expr | None = None
    description: str | None = None
    alias: str | None = None
    init: bool = True
    bounds: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_call(node: ast.expr | None) -> FieldCall | None:
    """The parts of the call, or None when the expression is no such call."""
    if not isinstance(node, ast.Call) or _called(node.func) not in _CALLS:
        return None
    given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    default = given.get("default", node.args[0] if node.args else None)
    if isinstance(default, ast.Constant) and default.value is ...:
        default = None
    return FieldCall(
        has_default=default is not None or "default_factory" in given,
        default=default,
        description=_text(given.get("description")),
        alias=_text(given.get("validation_alias")) or _text(given.get("alias")),
        init=not _is_false(given.get("init")),
        bounds={name: _value(given[name]) for name in (*_BOUNDS, *_LENGTHS, "pattern") if name in given},
    )


def bounded(schema: dict[str, Any], bounds: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with the bounds that can hold for its type; a bound that is not written as a value is left out."""
    kind = schema.get("type")
    found: dict[str, Any] = {}
    for name, value in bounds.items():
        if name in _LENGTHS:
            if kind in _LENGTHS[name] and _is_count(value):
                found[_LENGTHS[name][kind]] = value
        elif name == "pattern":
            if kind == "string" and isinstance(value, str):
                found["pattern"] = value
        elif kind in _NUMBERS and _is_number(value) and (name != "multiple_of" or value > 0):
            found[_BOUNDS[name]] = value
    return schema | found


def _called(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _value(node: ast.expr) -> Any:
    try:
        return constant(node)
    except NotConstant:
        return None


def _text(node: ast.expr | None) -> str | None:
    value = None if node is None else _value(node)
    return value if isinstance(value, str) and value else None


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
