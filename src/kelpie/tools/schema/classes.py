"""Classes of a tool's source that an argument may be an instance of, read from the syntax tree.

A *record* has named fields: a dataclass, a pydantic model, a TypedDict or a NamedTuple. A *choice* is an Enum whose
values are written down. Any other class has no JSON form and is not read here.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kelpie.tools.calls.plain_types import JSON_TYPES
from kelpie.tools.schema import docstrings
from kelpie.tools.schema.constants import NotConstant, constant
from kelpie.tools.schema.fields import FieldCall, read_call
from kelpie.tools.schema.source import Names

_RECORD_BASES = frozenset({"BaseModel", "TypedDict", "NamedTuple"})
_ENUM_BASES = frozenset({"Enum", "IntEnum", "StrEnum"})
_NOT_FIELDS = frozenset({"ClassVar", "KW_ONLY"})
_PARENTS_MAX = 64
PART_CHARS = 40  # how much text weighs as much as a type


@dataclass(frozen=True, slots=True)
class Entry:
    """A field of a record."""

    name: str
    annotation: ast.expr
    required: bool
    description: str | None = None
    default: Any = None
    bounds: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Record:
    entries: tuple[Entry, ...]
    description: str | None
    open: bool  # takes fields that it does not name

    @property
    def weight(self) -> int:
        """The size it adds to a schema wherever it is written out."""
        texts = [self.description or "", *(f"{one.name}{one.description}{one.default}" for one in self.entries)]
        return sum(1 + len(text) // PART_CHARS for text in texts)


@dataclass(frozen=True, slots=True)
class Choice:
    values: tuple[Any, ...]

    @property
    def weight(self) -> int:
        return sum(1 + len(str(value)) // PART_CHARS for value in self.values)

    @property
    def schema(self) -> dict[str, Any]:
        kinds = list(dict.fromkeys(JSON_TYPES[type(value)] for value in self.values))
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(self.values)}


def read_class(node: ast.ClassDef, names: Names) -> Record | Choice | None:
    """The record or choice that the class is, or None when it is neither."""
    lineage = _lineage(node, names)
    bases = frozenset(names.of(base) for one in lineage for base in one.bases)
    if bases & _ENUM_BASES:
        values = _members(node, bases)
        return None if values is None else Choice(tuple(values))
    if not (bases & _RECORD_BASES or any(_is_dataclass(one, names) for one in lineage)):
        return None
    entries: dict[str, Entry] = {}
    for one in lineage:
        entries |= _entries(one, names, "TypedDict" in bases)
    text = ast.get_docstring(node, clean=False) or ""
    return Record(tuple(entries.values()), docstrings.read(text).description or None, _is_open(node))


def _lineage(node: ast.ClassDef, names: Names) -> list[ast.ClassDef]:
    """The class and those of its parents that the source defines, parents first, each once."""
    found: dict[str, ast.ClassDef] = {}
    waiting = [node]
    while waiting and len(found) < _PARENTS_MAX:
        one = waiting.pop()
        found.pop(one.name, None)  # a parent of two comes before both
        found[one.name] = one
        parents = [base.id for base in one.bases if isinstance(base, ast.Name) and base.id in names.classes]
        waiting.extend(names.classes[name] for name in dict.fromkeys(parents) if name not in found)
    return list(reversed(found.values()))


def _is_dataclass(node: ast.ClassDef, names: Names) -> bool:
    called = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
    return any(names.of(one) == "dataclass" for one in called)


# --- records --------------------------------------------------------------------------------------------------------


def _entries(node: ast.ClassDef, names: Names, typed_dict: bool) -> dict[str, Entry]:
    """The fields that the class itself declares, in order."""
    found: dict[str, Entry] = {}
    total = not any(keyword.arg == "total" and _is(keyword.value, False) for keyword in node.keywords)
    described = docstrings.read(ast.get_docstring(node, clean=False) or "")
    texts = described.parameters | described.attributes
    for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            below = _remark_below(following)
            entry = _entry(statement.target.id, statement, names, typed_dict and not total, texts, below)
            if entry is not None:
                found[statement.target.id] = entry
    return found


def _entry(
    name: str, statement: ast.AnnAssign, names: Names, optional: bool, texts: Mapping[str, str], below: str | None
) -> Entry | None:
    """None for what is no field: class variables, private names, and fields that the constructor does not take."""
    annotation, marks = _unwrapped(statement.annotation, names)
    if name.startswith("_") or name == "model_config" or marks & _NOT_FIELDS:
        return None
    call = read_call(statement.value) or FieldCall(statement.value is not None, statement.value)
    inside = _annotated_call(annotation, names)
    if not call.init:
        return None
    missing = (optional and "Required" not in marks) or "NotRequired" in marks
    has_default = call.has_default or inside.has_default
    return Entry(
        name=call.alias or inside.alias or name,
        annotation=annotation,
        required=not (has_default or missing),
        description=call.description or inside.description or texts.get(name) or below,
        default=_default(call.default or inside.default),
        bounds=call.bounds,
    )


def _unwrapped(annotation: ast.expr, names: Names) -> tuple[ast.expr, set[str]]:
    """The annotation without the marks around it: `NotRequired[int]` is int, marked NotRequired."""
    marks: set[str] = set()
    wraps = {"Required", "NotRequired", "ReadOnly", "ClassVar", "InitVar", "Final"}
    while isinstance(annotation, ast.Subscript) and names.of(annotation.value) in wraps:
        marks.add(names.of(annotation.value))
        annotation = annotation.slice
    marks.add(names.of(annotation))
    return annotation, marks


def _annotated_call(annotation: ast.expr, names: Names) -> FieldCall:
    if isinstance(annotation, ast.Subscript) and names.of(annotation.value) == "Annotated":
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
        calls = [call for part in parts[1:] if (call := read_call(part))]
        if calls:
            return calls[-1]
    return FieldCall()


def _default(node: ast.expr | None) -> Any:
    try:
        return None if node is None else constant(node)
    except NotConstant:
        return None


def _remark_below(statement: ast.stmt | None) -> str | None:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split()) or None
        case _:
            return None


def _is_open(node: ast.ClassDef) -> bool:
    """True if a pydantic model says `extra="allow"`."""
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="model_config")], value=ast.Call(keywords=keywords)):
                return any(one.arg == "extra" and _is(one.value, "allow") for one in keywords)
            case ast.Assign(targets=[ast.Name(id="model_config")], value=ast.Dict() as given):
                return _default(given) is not None and _default(given).get("extra") == "allow"
            case _:
                continue
    return False


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


# --- choices --------------------------------------------------------------------------------------------------------


def _members(node: ast.ClassDef, bases: frozenset[str]) -> list[Any] | None:
    """The values of an Enum in order, or None when one of them is not written down or has no JSON form."""
    values: list[Any] = []
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not name.startswith("_"):
                found = _automatic(name, values, bases) if _is_auto(value) else _default(value)
                if not isinstance(found, str | int | float):
                    return None
                if not any(found == one and type(found) is type(one) for one in values):
                    values.append(found)
            case _:
                continue
    return values or None


def _is_auto(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and not node.args and ast.unparse(node.func) in {"auto", "enum.auto"}


def _automatic(name: str, before: list[Any], bases: frozenset[str]) -> Any:
    if "StrEnum" in bases:
        return name.lower()
    if "str" in bases or not all(type(value) is int for value in before):
        return None
    return max(before, default=0) + 1
