"""JSON schema from source: the right schema, or a sentence that names what is missing; the source never runs."""

from typing import Any

import pytest

from kelpie.core.errors import InvalidInput
from kelpie.tools.schema.python_schema import SOURCE_CHARS_MAX, schema_from_source, schema_with_arguments

STRING = {"type": "string"}


HEADER = """
from typing import *
from typing import List as L
Mode = Literal["fast", "slow"]
UserId = NewType("UserId", str)
Loop = List["Loop"]
"""


def with_parameter(declaration: str) -> str:
    return f'{HEADER}\ndef f({declaration}) -> str:\n    """Do f.\n\n    Args:\n        p: the p\n    """\n'


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        ("str", STRING),
        ("int", {"type": "integer"}),
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("list", {"type": "array", "items": STRING}),
        ("List", {"type": "array", "items": STRING}),
        ("list[int]", {"type": "array", "items": {"type": "integer"}}),
        ("typing.List[List[int]]", {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        ("list[Optional[str]]", {"type": "array", "items": {"anyOf": [STRING, {"type": "null"}]}}),
        ("dict", {"type": "object"}),
        ("Dict", {"type": "object"}),
        ("Dict[str, int]", {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("dict[str, Any]", {"type": "object"}),
        ("Union[int, str]", {"anyOf": [{"type": "integer"}, STRING]}),
        ("int | str | int", {"anyOf": [{"type": "integer"}, STRING]}),
        ("Literal['a', 'b']", {"type": "string", "enum": ["a", "b"]}),
        ("Literal[1, 2]", {"type": "integer", "enum": [1, 2]}),
        ("Literal['a', 1]", {"type": ["string", "integer"], "enum": ["a", 1]}),
        ("Annotated[int, 'why']", {"type": "integer"}),
        ("Literal['a', Literal['b', None]]", {"type": ["string", "null"], "enum": ["a", "b", None]}),
        ("Annotated[int, Field(ge=1, lt=9)]", {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}),
        ("Annotated[List[str], Field(min_length=1)]", {"type": "array", "items": STRING, "minItems": 1}),
        ("Any", {}),
        ("'list[str]'", {"type": "array", "items": STRING}),
        ("L[int]", {"type": "array", "items": {"type": "integer"}}),
        ("Mode", {"type": "string", "enum": ["fast", "slow"]}),
        ("list[UserId]", {"type": "array", "items": STRING}),
        ("tuple", {"type": "array", "items": {}}),
        ("tuple[int, ...]", {"type": "array", "items": {"type": "integer"}}),
        (
            "Tuple[int, str]",
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, STRING],
                "items": {"anyOf": [{"type": "integer"}, STRING]},
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        ("set[str]", {"type": "array", "items": STRING, "uniqueItems": True}),
        ("FrozenSet", {"type": "array", "items": {}, "uniqueItems": True}),
        ("Sequence[float]", {"type": "array", "items": {"type": "number"}}),
        ("Mapping[str, bool]", {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (
            "dict[int, str]",
            {"type": "object", "additionalProperties": STRING, "propertyNames": {"pattern": "^-?[0-9]+$"}},
        ),
        ("dict[Literal['a'], Any]", {"type": "object", "propertyNames": {"enum": ["a"]}}),
        ("datetime", {"type": "string", "format": "date-time"}),
        ("datetime.date", {"type": "string", "format": "date"}),
        ("uuid.UUID", {"type": "string", "format": "uuid"}),
        ("Decimal", {"type": "number"}),
    ],
)
def test_annotations(annotation: str, schema: dict[str, Any]) -> None:
    found = schema_from_source(with_parameter(f"p: {annotation}"))
    assert found == {
        "name": "f",
        "description": "Do f.",
        "parameters": {
            "type": "object",
            "properties": {"p": schema | {"description": "the p"}},
            "required": ["p"],
        },
    }


@pytest.mark.parametrize(
    ("declaration", "schema"),
    [
        ("p: Optional[str]", STRING),
        ("p: str | None", STRING),
        ("p: None | str", STRING),
        ("p: Union[str, None]", STRING),
        ("p: Optional[List[str]] = None", {"type": "array", "items": STRING}),
        ("p: Optional[Union[int, str]]", {"anyOf": [{"type": "integer"}, STRING]}),
        ("p: int = 5", {"type": "integer", "default": 5}),
        ("*, p: List[str] = ['a']", {"type": "array", "items": STRING, "default": ["a"]}),
        ("p: bool = False", {"type": "boolean", "default": False}),
        ("p: int = None", {"type": "integer"}),
        ("p: str = os.environ['HOME']", STRING),
        ("p: int = 10 ** 99", {"type": "integer"}),
    ],
)
def test_what_has_a_default_or_is_optional_is_not_required(declaration: str, schema: dict[str, Any]) -> None:
    parameters = schema_from_source(with_parameter(declaration))["parameters"]
    assert parameters["properties"] == {"p": schema | {"description": "the p"}}
    assert parameters["required"] == []


@pytest.mark.parametrize(
    "annotation",
    [
        "bytes",
        "Item",
        "Dict[float, str]",
        "list[Item]",
        "'x y'",
        "Callable[[int], str]",
        "Literal[f]",
        "T[int]",
        "Loop",
    ],
)
def test_other_types_are_refused_by_name(annotation: str) -> None:
    with pytest.raises(InvalidInput, match="parameter 'p' of f has the type"):
        schema_from_source(with_parameter(f"p: {annotation}"))


def test_the_docstring_gives_the_texts() -> None:
    source = '''
def helper(a):
    return a

def f(a: int, b: str = "x", *args, agent_state: "AgentState" = None, **kwargs) -> int:
    """Do f.

    Long para one.

    Long para two.

    Args:
        a (int): first line
            second line
        b (str, optional): the b. Defaults to x.
        zz: not a parameter

    Returns:
        int: res

    Examples:
        >>> f(1)
    """
    def inner(z):
        return z
    return inner(a)
'''
    found = schema_from_source(source)
    assert found["name"] == "f"
    assert found["description"] == "Do f.\n\nLong para one.\n\nLong para two.\n\nExamples:\n    >>> f(1)"
    assert found["parameters"] == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "first line\nsecond line"},
            "b": {"type": "string", "description": "the b. Defaults to x.", "default": "x"},
        },
        "required": ["a"],
    }


def test_a_tool_without_parameters_and_with_decorator() -> None:
    found = schema_from_source('import functools\n\n@functools.cache\ndef f():\n    "One line."\n')
    assert (found["description"], found["parameters"]["properties"]) == ("One line.", {})


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def f(x: int):\n    return x\n", "f has no docstring"),
        ('def f(x):\n    """Doc.\n\n    Args:\n        x: v\n    """\n', "'x' of f has no type annotation"),
        ('def f(x: int):\n    """Doc."""\n', "'x' of f has no description"),
        ("def f(:\n", "not valid Python: .* in line 1"),
        ("x = 1\n", "contains no top-level function"),
        ('class A:\n    def f(self):\n        """D."""\n', "contains no top-level function"),
        ('def f():\n    """D. \\ud800"""\n', "invalid Unicode character"),
        ('def f():\n    """D. \\x00"""\n', "NUL"),
        ("def f(p: " + "int | " * 3000 + 'int):\n    """D.\n\n    Args:\n        p: p\n    """\n', "source_code"),
        ("a\x00b", "source_code"),
        ("x = " + "(" * 5000 + ")" * 5000, "source_code"),
        ("#" * (SOURCE_CHARS_MAX + 1), "the limit is"),
    ],
)
def test_what_is_missing_is_named(source: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        schema_from_source(source)


def test_async_functions_and_helpers_beside_the_tool() -> None:
    source = '"""A module."""\n\nasync def f():\n    """Do f."""\n\n\ndef _helper(a, b):\n    return a\n'
    assert schema_from_source(source)["name"] == "f"
    assert (
        schema_from_source('try:\n    import x\nexcept ImportError:\n    x = 1\nif x:\n    def g():\n        "G."\n')[
            "name"
        ]
        == "g"
    )
    assert schema_from_source('def _only():\n    "One."\n')["name"] == "_only"


def test_the_annotation_may_describe_the_parameter() -> None:
    source = (
        'def f(a: Annotated[int, "the a"], b: Annotated[int, Field(description="the b", ge=0)] = 1):\n    "Do f."\n'
    )
    assert schema_from_source(source)["parameters"]["properties"] == {
        "a": {"type": "integer", "description": "the a"},
        "b": {"type": "integer", "minimum": 0, "description": "the b", "default": 1},
    }


def test_the_source_is_never_executed() -> None:
    function = 'def f(x: str = open("/nonexistent")):\n    """D.\n\n    Args:\n        x: y\n    """\n'
    assert schema_from_source(f'raise SystemExit("executed")\n\n{function}')["name"] == "f"


def test_given_arguments_take_the_place_of_annotations() -> None:
    arguments = {"type": "object", "properties": {"x": {"type": "integer"}}}
    source = 'def f(x):\n    """Do f.\n\n    Args:\n        x: the x\n    """\n'
    assert schema_with_arguments(source, arguments) == {
        "name": "f",
        "description": "Do f.\n\nArgs:\n    x: the x",
        "parameters": arguments,
    }
