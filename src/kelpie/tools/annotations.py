"""Turns a parameter's type annotation into JSON schema, from the syntax tree alone."""

import ast
from typing import Any, cast

_PLAIN: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "Any": {},
    "list": {"type": "array", "items": {"type": "string"}},
    "List": {"type": "array", "items": {"type": "string"}},
    "dict": {"type": "object"},
    "Dict": {"type": "object"},
}
_JSON_TYPES: dict[type, str] = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
_NULL = _PLAIN["None"]
SUPPORTED = "str, int, float, bool, list[...], dict[str, ...], Optional[...], Union[...], X | None, Literal[...], Any"


class UnsupportedAnnotation(ValueError):
    """The annotation has no JSON schema; the text is the annotation."""


def parameter_schema(annotation: ast.expr) -> tuple[dict[str, Any], bool]:
    """The schema of a parameter and whether it may be left out: `Optional[X]` is X that may be left out.

    Raises UnsupportedAnnotation.
    """
    choices = _choices(annotation)
    real = [choice for choice in choices if choice != _NULL]
    if len(real) == len(choices) or not real:
        return _union(choices), False
    return _union(real), True


def _schema(node: ast.expr) -> dict[str, Any]:
    return _union(_choices(node))


def _union(choices: list[dict[str, Any]]) -> dict[str, Any]:
    different = [choice for number, choice in enumerate(choices) if choice not in choices[:number]]
    return different[0] if len(different) == 1 else {"anyOf": different}


def _choices(node: ast.expr) -> list[dict[str, Any]]:
    """The alternatives of an annotation; most have one."""
    match node:
        case ast.Constant(value=None):
            return [_NULL]
        case ast.Constant(value=str(text)):
            return _choices(_quoted(text))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _choices(left) + _choices(right)
        case ast.Subscript(value=value, slice=inside):
            return _subscript(_name(value), _arguments(inside), node)
        case _:
            name = _name(node)
            if name not in _PLAIN:
                raise UnsupportedAnnotation(ast.unparse(node))
            return [dict(_PLAIN[name])]


def _quoted(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise UnsupportedAnnotation(repr(text)) from None


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):  # typing.List
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _arguments(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _subscript(name: str, arguments: list[ast.expr], node: ast.expr) -> list[dict[str, Any]]:
    match name, len(arguments):
        case (("list" | "List"), 1):
            return [{"type": "array", "items": _schema(arguments[0])}]
        case (("dict" | "Dict"), 2) if _name(arguments[0]) == "str":
            inner = _schema(arguments[1])
            return [{"type": "object", "additionalProperties": inner} if inner else {"type": "object"}]
        case "Optional", 1:
            return [*_choices(arguments[0]), _NULL]
        case "Union", _:
            return [choice for argument in arguments for choice in _choices(argument)]
        case "Literal", _:
            return [_literal(arguments, node)]
        case "Annotated", count if count >= 2:
            return _choices(arguments[0])
        case _:
            raise UnsupportedAnnotation(ast.unparse(node))


def _literal(arguments: list[ast.expr], node: ast.expr) -> dict[str, Any]:
    values: list[Any] = []
    for argument in arguments:
        try:
            value = cast("Any", ast.literal_eval(argument))
        except ValueError:
            raise UnsupportedAnnotation(ast.unparse(node)) from None
        if type(value) not in _JSON_TYPES:
            raise UnsupportedAnnotation(ast.unparse(node))
        values.append(value)
    kinds = list(dict.fromkeys(_JSON_TYPES[type(value)] for value in values))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}
