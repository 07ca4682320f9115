"""Turns type annotations into JSON schema, from the syntax tree alone.

Classes of the same source are written out where they are used; one that contains itself becomes a definition, which
is referred to. The size of the result is bounded, however the classes are nested.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kelpie.tools.calls.plain_types import DICTS, LISTS, NULL, PLAIN, SETS, TUPLES, WHOLE_NUMBER, Schema
from kelpie.tools.schema.annotation_syntax import UnsupportedAnnotation, alternatives, arguments_in, quoted
from kelpie.tools.schema.classes import Choice, Record, read_class
from kelpie.tools.schema.constants import NotConstant, constant
from kelpie.tools.schema.fields import bounded, read_call
from kelpie.tools.schema.source import Names

SUPPORTED = (
    "str, int, float, bool, list[...], dict[str, ...], tuple[...], set[...], Optional[...], Union[...], X | None, "
    "Literal[...], Any, datetime, date, time, UUID, Decimal, or a dataclass, pydantic model, TypedDict or Enum of the "
    "same source"
)
SIZE_MAX = 5000  # how many parts one schema may have: types, choices, and texts by their length
DEPTH_MAX = 24


@dataclass(frozen=True, slots=True)
class Parameter:
    """`optional` says that it may be left out because of its type; the description is the annotation's own."""

    schema: Schema
    optional: bool
    description: str | None


class Types:
    """The types of one source. `definitions` are the classes that contain themselves, once they were met."""

    def __init__(self, names: Names) -> None:
        self.definitions: dict[str, Schema] = {}
        self._names = names
        self._open: list[str] = []  # the classes and aliases that are being written out
        self._circular: set[str] = set()
        self._read: dict[str, Record | Choice | None] = {}
        self._left = SIZE_MAX
        self._depth = 0

    def parameter(self, annotation: ast.expr) -> Parameter:
        """The schema of a parameter: `Optional[X]` is X that may be left out. Raises UnsupportedAnnotation."""
        choices = self._choices(annotation)
        real = [choice for choice in choices if choice != NULL]
        optional = bool(real) and len(real) < len(choices)
        return Parameter(_union(real if optional else choices), optional, self._remark(annotation))

    def _schema(self, node: ast.expr) -> Schema:
        return _union(self._choices(node))

    def _choices(self, node: ast.expr) -> list[Schema]:
        """The alternatives of an annotation; most have one."""
        self._spend(1)
        if self._depth >= DEPTH_MAX:
            raise UnsupportedAnnotation(f"of more than {DEPTH_MAX} levels")
        self._depth += 1
        try:
            return self._alternatives(node)
        finally:
            self._depth -= 1

    def _spend(self, parts: int) -> None:
        self._left -= parts
        if self._left < 0:
            raise UnsupportedAnnotation(f"of more than {SIZE_MAX} parts")

    def _alternatives(self, node: ast.expr) -> list[Schema]:
        match node:
            case ast.Constant(value=None):
                return [dict(NULL)]
            case ast.Constant(value=str(text)):
                return self._choices(quoted(text))
            case ast.BinOp(op=ast.BitOr()):
                return [choice for part in alternatives(node) for choice in self._choices(part)]
            case ast.Subscript(value=value, slice=inside):
                return self._subscript(self._names.of(value), arguments_in(inside), node)
            case ast.Name(id=name) if name in self._names.classes:
                return [self._class(name, node)]
            case ast.Name(id=name) if name in self._names.aliases:
                return self._alias(name, node)
            case _:
                return [self._plain(node)]

    def _plain(self, node: ast.expr) -> Schema:
        name = self._names.of(node)
        if name in PLAIN:
            return dict(PLAIN[name])
        if name in LISTS | TUPLES:
            return {"type": "array", "items": {}}
        if name in SETS:
            return {"type": "array", "items": {}, "uniqueItems": True}
        if name in DICTS:
            return {"type": "object"}
        raise UnsupportedAnnotation(node)

    def _subscript(self, name: str, arguments: list[ast.expr], node: ast.expr) -> list[Schema]:
        first, count = arguments[0], len(arguments)
        if name in LISTS and count == 1:
            return [{"type": "array", "items": self._schema(first)}]
        if name in SETS and count == 1:
            return [{"type": "array", "items": self._schema(first), "uniqueItems": True}]
        if name in TUPLES:
            return [self._tuple(arguments)]
        if name in DICTS and count == 2:
            return [self._dict(first, arguments[1], node)]
        match name:
            case "Optional" if count == 1:
                return [*self._choices(first), dict(NULL)]
            case "Union":
                return [choice for argument in arguments for choice in self._choices(argument)]
            case "Literal":
                return [self._literal(arguments, node)]
            case "Annotated" if count >= 2:
                calls = [call for argument in arguments[1:] if (call := read_call(argument))]
                bounds = {key: value for call in calls for key, value in call.bounds.items()}
                return [bounded(choice, bounds) for choice in self._choices(first)]
            case _:
                raise UnsupportedAnnotation(node)

    def _tuple(self, arguments: Sequence[ast.expr]) -> Schema:
        match arguments:
            case [one, ast.Constant(value=value)] if value is ...:
                return {"type": "array", "items": self._schema(one)}
            case [ast.Tuple(elts=[])]:  # tuple[()]
                return {"type": "array", "items": {}, "maxItems": 0}
            case _:
                places = [self._schema(argument) for argument in arguments]
                count = len(places)
                # `items` describes the elements after the positions, of which there are none; some providers insist on
                # it.
                return {
                    "type": "array",
                    "prefixItems": places,
                    "items": _union(places),
                    "minItems": count,
                    "maxItems": count,
                }

    def _dict(self, key: ast.expr, value: ast.expr, node: ast.expr) -> Schema:
        keys, inner = self._schema(key), self._schema(value)
        found: Schema = {"type": "object", "additionalProperties": inner} if inner else {"type": "object"}
        if keys == PLAIN["int"]:
            return found | {"propertyNames": {"pattern": WHOLE_NUMBER}}
        if keys.get("type") == "string":
            names = {name: rule for name, rule in keys.items() if name != "type"}
            return found | {"propertyNames": names} if names else found
        if keys:
            raise UnsupportedAnnotation(node)
        return found

    def _literal(self, arguments: Sequence[ast.expr], node: ast.expr) -> Schema:
        values = [value for argument in arguments for value in self._literal_values(argument, node)]
        choice = Choice(tuple(values))
        self._spend(choice.weight)
        return choice.schema

    def _literal_values(self, argument: ast.expr, node: ast.expr) -> list[Any]:
        if isinstance(argument, ast.Subscript) and self._names.of(argument.value) == "Literal":
            return [value for one in arguments_in(argument.slice) for value in self._literal_values(one, node)]
        try:
            value = constant(argument)
        except NotConstant:
            raise UnsupportedAnnotation(node) from None
        if value is not None and not isinstance(value, str | int):
            raise UnsupportedAnnotation(node)
        return [value]

    # --- what the source defines ------------------------------------------------------------------------------------

    def _alias(self, name: str, node: ast.expr) -> list[Schema]:
        if name in self._open:
            raise UnsupportedAnnotation(node)
        meant = self._names.aliases[name]
        if isinstance(meant, ast.Call) and self._names.of(meant.func) == "NewType" and len(meant.args) == 2:
            meant = meant.args[1]
        self._open.append(name)
        try:
            return self._choices(meant)
        finally:
            self._open.pop()

    def _class(self, name: str, node: ast.expr) -> Schema:
        reference = {"$ref": f"#/$defs/{name}"}
        if name in self.definitions:
            return reference
        if name in self._open:
            self._circular.add(name)
            return reference
        if name not in self._read:
            self._read[name] = read_class(self._names.classes[name], self._names)
        read = self._read[name]
        if read is None:
            raise UnsupportedAnnotation(node)
        self._spend(read.weight)
        if isinstance(read, Choice):
            return read.schema
        self._open.append(name)
        try:
            schema = self._record(read)
        finally:
            self._open.pop()
        if name not in self._circular:
            return schema
        self.definitions[name] = schema
        return reference

    def _record(self, record: Record) -> Schema:
        properties: dict[str, Schema] = {}
        for entry in record.entries:
            choices = [bounded(choice, entry.bounds) for choice in self._choices(entry.annotation)]
            schema = _union(choices)
            description = entry.description or self._remark(entry.annotation)
            if description:
                schema = schema | {"description": description}
            if entry.default is not None:
                schema = schema | {"default": entry.default}
            properties[entry.name] = schema
        found: Schema = {"type": "object"}
        if record.description:
            found["description"] = record.description
        found |= {"properties": properties, "required": [entry.name for entry in record.entries if entry.required]}
        return found | {"additionalProperties": True} if record.open else found

    def _remark(self, node: ast.expr) -> str | None:
        """The text about the value in `Annotated[X, ...]`: a string, a `Field` or a `Doc`."""
        if isinstance(node, ast.Name) and node.id in self._names.aliases:
            node = self._names.aliases[node.id]
        if not (isinstance(node, ast.Subscript) and self._names.of(node.value) == "Annotated"):
            return None
        for part in arguments_in(node.slice)[1:]:
            match part:
                case ast.Constant(value=str(text)):
                    return text
                case ast.Call(func=called, args=[ast.Constant(value=str(text))]) if self._names.of(called) == "Doc":
                    return text
                case _:
                    if (call := read_call(part)) and call.description:
                        return call.description
        return None


def _union(choices: Sequence[Schema]) -> Schema:
    different = [choice for number, choice in enumerate(choices) if choice not in choices[:number]]
    return different[0] if len(different) == 1 else {"anyOf": different}
