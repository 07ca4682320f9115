"""Classes of the tool's own source as types of its parameters: records, choices, and those that contain themselves."""

from typing import Any

import pytest

from kelpie.core.errors import InvalidInput
from kelpie.tools.calls.argument_check import check_arguments
from kelpie.tools.schema.annotations import SIZE_MAX
from kelpie.tools.schema.python_schema import schema_from_source

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
HEADER = "from dataclasses import *\nfrom enum import *\nfrom typing import *\nfrom pydantic import *\n"


def parameters_of(classes: str, annotation: str) -> dict[str, Any]:
    function = f'def f(p: {annotation}) -> str:\n    """Do f.\n\n    Args:\n        p: the p\n    """\n'
    return schema_from_source(f"{HEADER}\n{classes}\n\n{function}")["parameters"]


def schema_of(classes: str, annotation: str) -> dict[str, Any]:
    found = dict(parameters_of(classes, annotation)["properties"]["p"])
    assert found.pop("description") == "the p"
    return found


def test_a_pydantic_model() -> None:
    source = '''
class Place(BaseModel):
    city: str
    zip_code: str = Field(pattern="^[0-9]+$", min_length=3)

class Item(BaseModel):
    """An item."""
    model_config = ConfigDict(extra="allow")
    kinds: ClassVar[int] = 3
    _secret: int = 0
    name: str = Field(..., description="the name")
    qty: Annotated[int, Field(gt=0, description="how many")] = 1
    tags: List[str] = []
    note: Optional[str]
    price: float | None = Field(default=None, ge=0)
    class_: str = Field("x", alias="class")
    place: Place
    made: list[Place] = Field(default_factory=list)
    def method(self) -> int:
        return 1
'''
    place = {
        "type": "object",
        "properties": {"city": STRING, "zip_code": STRING | {"pattern": "^[0-9]+$", "minLength": 3}},
        "required": ["city", "zip_code"],
    }
    found = schema_of(source, "Item")
    assert found["properties"] == {
        "name": STRING | {"description": "the name"},
        "qty": INTEGER | {"exclusiveMinimum": 0, "description": "how many", "default": 1},
        "tags": {"type": "array", "items": STRING, "default": []},
        "note": {"anyOf": [STRING, {"type": "null"}]},
        "price": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]},
        "class": STRING | {"default": "x"},
        "place": place,
        "made": {"type": "array", "items": place},
    }
    assert found["required"] == ["name", "note", "place"] and found["additionalProperties"] is True
    assert schema_of(source, "List[Place]") == {"type": "array", "items": place}
    assert schema_of(source, "Optional[Place]") == place


def test_a_dataclass_and_its_parents() -> None:
    source = '''
@dataclass
class Base:
    """The base.

    Attributes:
        a: the a of the base
    """
    a: int
    hidden: int = field(init=False)

@dataclass(frozen=True)
class Point(Base):
    b: "list[int]" = field(default_factory=list)
    """What stands below."""
    _: KW_ONLY
    c: str = field(kw_only=True, default="z")
    a: float = 0.5

class Plain(Point):
    ignored = 1
'''
    properties = {
        "a": {"type": "number", "default": 0.5},
        "b": {"type": "array", "items": INTEGER, "description": "What stands below."},
        "c": STRING | {"default": "z"},
    }
    for name in ("Point", "Plain"):
        assert schema_of(source, name) == {"type": "object", "properties": properties, "required": []}
    assert schema_of(source, "Base") == {
        "type": "object",
        "properties": {"a": INTEGER | {"description": "the a of the base"}},
        "required": ["a"],
    }
    assert schema_of(source, "list[Base]")["items"]["description"] == "The base."


def test_typed_dicts_and_named_tuples() -> None:
    source = """
class Options(TypedDict, total=False):
    fast: bool
    size: Required[int]

class Pair(NamedTuple):
    left: int
    right: NotRequired[int]
    third: str = "x"
"""
    options = schema_of(source, "Options")
    assert options["properties"] == {"fast": {"type": "boolean"}, "size": INTEGER} and options["required"] == ["size"]
    assert schema_of(source, "Pair")["required"] == ["left"]


@pytest.mark.parametrize(
    ("declaration", "schema"),
    [
        ("class E(Enum):\n    A = 'a'\n    B = 'b'\n    C = 'a'\n    def m(self): ...", STRING | {"enum": ["a", "b"]}),
        ("class E(str, Enum):\n    A = 'a'", STRING | {"enum": ["a"]}),
        ("class E(StrEnum):\n    Red = auto()\n    BLUE = auto()", STRING | {"enum": ["red", "blue"]}),
        ("class E(IntEnum):\n    A = 4\n    B = auto()", INTEGER | {"enum": [4, 5]}),
        ("class E(Enum):\n    A = 'a'\n    B = 1", {"type": ["string", "integer"], "enum": ["a", 1]}),
        ("class E(Enum):\n    A = 0.5", {"type": "number", "enum": [0.5]}),
    ],
)
def test_enums(declaration: str, schema: dict[str, Any]) -> None:
    assert schema_of(declaration, "E") == schema
    assert schema_of(declaration, "list[E]") == {"type": "array", "items": schema}


@pytest.mark.parametrize(
    "declaration",
    [
        "class E: pass",
        "class E(Enum): pass",
        "class E(Enum):\n    A = object()",
        "class E(Enum):\n    A = (1, 2)",
        "class E(str, Enum):\n    A = auto()",
        "class E(BaseModel):\n    x: bytes",
        "class E(E): pass",
        "E = E",
    ],
)
def test_what_has_no_json_form_is_refused_by_name(declaration: str) -> None:
    with pytest.raises(InvalidInput, match="parameter 'p' of f has the type"):
        parameters_of(declaration, "E")


def test_a_class_that_contains_itself_is_a_definition() -> None:
    source = """
class Node(BaseModel):
    name: str
    children: list["Node"] = []
    leaf: Optional["Leaf"] = None

class Leaf(BaseModel):
    parent: Node
"""
    parameters = parameters_of(source, "Node")
    assert parameters["properties"]["p"] == {"$ref": "#/$defs/Node", "description": "the p"}
    assert set(parameters["$defs"]) == {"Node"}
    tree = {"name": "a", "children": [{"name": "b", "children": []}], "leaf": {"parent": {"name": "c"}}}
    schema = {"name": "f", "parameters": parameters}
    assert check_arguments(schema, {"p": tree}) == {"p": tree}


def test_a_schema_that_would_explode_is_refused() -> None:
    levels = "\n".join(f"class C{n}(BaseModel):\n    a: C{n + 1}\n    b: C{n + 1}\n" for n in range(15))
    with pytest.raises(InvalidInput, match=f"more than {SIZE_MAX} parts"):
        parameters_of(f"{levels}\nclass C15(BaseModel):\n    x: int\n", "C0")
