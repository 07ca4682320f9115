"""Any signature gives a sound schema, and arguments pass exactly when Python would take them.

The generated source is executed here, in the test, to ask pydantic what the annotation really accepts.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from kelpie.core.errors import ToolError
from kelpie.tools.calls.argument_check import check_arguments
from kelpie.tools.schema.python_schema import schema_from_source

HEADER = '''
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum, IntEnum
from typing import *
from uuid import UUID
from pydantic import BaseModel, Field
from typing_extensions import Required, TypedDict

class Color(Enum):
    RED = "red"
    BLUE = "blue"

class Level(IntEnum):
    LOW = 1
    HIGH = 2

@dataclass
class Point:
    x: int
    y: float = 0.5
    names: list[str] = field(default_factory=list)

class Item(BaseModel):
    """An item."""
    name: str = Field(description="the name", min_length=1)
    qty: Annotated[int, Field(ge=0, le=100)] = 1
    where: Optional[Point] = None
    color: Color

class Tree(BaseModel):
    label: str
    children: "list[Tree]" = []

class Options(TypedDict, total=False):
    fast: bool
    size: Required[int]
'''
TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}
KEYS = {
    *("type", "enum", "items", "prefixItems", "properties", "required", "additionalProperties", "propertyNames"),
    *("anyOf", "description", "default", "format", "pattern", "uniqueItems", "$ref", "$defs"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minItems", "maxItems", "minLength", "maxLength"),
}


@dataclass(frozen=True)
class Kind:
    """An annotation and values that it takes, as JSON."""

    annotation: str
    values: st.SearchStrategy[Any] = field(repr=False)


whole, texts = st.integers(-(2**53), 2**53), st.text(max_size=4)
points = st.fixed_dictionaries({"x": whole}, optional={"y": st.floats(allow_nan=False, allow_infinity=False)})
items = st.fixed_dictionaries(
    {"name": st.text(min_size=1, max_size=4), "color": st.sampled_from(["red", "blue"])},
    optional={"qty": st.integers(0, 100), "where": st.none() | points},
)
trees = st.recursive(
    st.fixed_dictionaries({"label": texts}),
    lambda inner: st.fixed_dictionaries({"label": texts, "children": st.lists(inner, max_size=2)}),
    max_leaves=4,
)
scalars = st.sampled_from(
    [
        Kind("str", texts),
        Kind("int", whole),
        Kind("bool", st.booleans()),
        Kind("Literal['a', 2, True]", st.sampled_from(["a", 2, True])),
        Kind("Color", st.sampled_from(["red", "blue"])),
        Kind("Level", st.sampled_from([1, 2])),
    ]
)
leaves = scalars | st.sampled_from(
    [
        Kind("float", st.floats(allow_nan=False, allow_infinity=False)),
        Kind("None", st.none()),
        Kind("Any", st.none() | whole | st.lists(texts, max_size=2)),
        Kind("Point", points),
        Kind("Item", items),
        Kind("Tree", trees),
        Kind("Options", st.fixed_dictionaries({"size": whole}, optional={"fast": st.booleans()})),
    ]
)


def nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        inner.map(lambda k: Kind(f"list[{k.annotation}]", st.lists(k.values, max_size=3))),
        inner.map(lambda k: Kind(f"Tuple[{k.annotation}, ...]", st.lists(k.values, max_size=3))),
        inner.map(lambda k: Kind(f"Dict[str, {k.annotation}]", st.dictionaries(texts, k.values, max_size=3))),
        inner.map(lambda k: Kind(f"dict[int, {k.annotation}]", st.dictionaries(whole.map(str), k.values, max_size=3))),
        inner.map(lambda k: Kind(f"Optional[{k.annotation}]", st.none() | k.values)),
        pairs.map(lambda p: Kind(f"Union[{p[0].annotation}, {p[1].annotation}]", p[0].values | p[1].values)),
        pairs.map(
            lambda p: Kind(
                f"tuple[{p[0].annotation}, {p[1].annotation}]", st.tuples(p[0].values, p[1].values).map(list)
            )
        ),
        scalars.map(lambda k: Kind(f"set[{k.annotation}]", st.lists(k.values, max_size=3))),
    )


kinds = st.recursive(leaves, nested, max_leaves=4)
json_values = st.recursive(
    st.none() | st.booleans() | whole | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def schema_for(*annotations: str, defaults: int = 0) -> dict[str, Any]:
    required = len(annotations) - defaults
    declared = [f"p{n}: {one}{'' if n < required else ' = None'}" for n, one in enumerate(annotations)]
    described = "\n".join(f"        p{n}: number {n}" for n in range(len(annotations)))
    function = f'def f({", ".join(declared)}):\n    """Do f.\n\n    Args:\n{described}\n    """\n'
    return schema_from_source(f"{HEADER}\n{function}")


@cache
def namespace() -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(HEADER, "<header>", "exec", dont_inherit=True), found)
    found["Tree"].model_rebuild(_types_namespace=found)
    return found


def python_takes(annotation: str, value: Any) -> bool:
    names = namespace()
    meant = eval(annotation, names)
    try:
        TypeAdapter(meant).validate_python(value)
    except ValidationError:
        return False
    return True


def check_sound(schema: Any, root: dict[str, Any]) -> None:
    """What JSON schema asks of the keys that are used."""
    assert isinstance(schema, dict) and set(schema) <= KEYS, schema
    named = schema.get("type", [])
    assert set([named] if isinstance(named, str) else named) <= TYPES
    assert schema.get("enum", [0]) and schema.get("anyOf", [0])
    if "$ref" in schema:
        assert schema["$ref"].removeprefix("#/$defs/") in root["$defs"]
    for inner in (*schema.get("anyOf", ()), *schema.get("prefixItems", ()), *schema.get("properties", {}).values()):
        check_sound(inner, root)
    for key in ("items", "propertyNames"):
        if key in schema:
            check_sound(schema[key], root)
    if isinstance(schema.get("additionalProperties"), dict):
        check_sound(schema["additionalProperties"], root)
    assert set(schema.get("required", ())) <= set(schema.get("properties", {}))
    assert named != "array" or "items" in schema, "providers insist on it"


@given(st.lists(kinds, max_size=4), st.integers(0, 4))
@settings(deadline=None, max_examples=50)
def test_any_signature_gives_a_sound_schema(signature: list[Kind], defaults: int) -> None:
    found = schema_for(*(kind.annotation for kind in signature), defaults=min(defaults, len(signature)))
    parameters = found["parameters"]
    assert json.loads(json.dumps(found)) == found
    assert list(parameters["properties"]) == [f"p{n}" for n in range(len(signature))]
    check_sound(parameters, parameters)
    for inner in parameters.get("$defs", {}).values():
        check_sound(inner, parameters)


@given(kinds.flatmap(lambda kind: st.tuples(st.just(kind), kind.values)))
@settings(deadline=None, max_examples=100)
def test_what_the_annotation_means_is_taken(case: tuple[Kind, Any]) -> None:
    kind, value = case
    schema = schema_for(kind.annotation)
    checked = check_arguments(schema, {"p0": value})
    if "p0" in checked:
        assert python_takes(kind.annotation, checked["p0"])
    else:
        assert value is None, "only null may be understood as left out"


@given(kinds, json_values)
@settings(deadline=None, max_examples=100)
def test_what_is_taken_python_takes_too(kind: Kind, value: Any) -> None:
    schema = schema_for(kind.annotation)
    try:
        checked = check_arguments(schema, {"p0": value})
    except ToolError:
        return
    assert value is None or python_takes(kind.annotation, checked["p0"])
