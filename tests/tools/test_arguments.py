"""A model's arguments: slips that lose nothing are mended, everything else is told in a sentence."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.errors import ToolError
from kelpie.tools.calls.argument_check import check_arguments

SCHEMA: dict[str, Any] = {
    "name": "tool",
    "parameters": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "flag": {"type": "boolean"},
            "names": {"type": "array", "items": {"type": "string"}},
            "mode": {"type": "string", "enum": ["any", "all"]},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
            "point": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                "required": ["x"],
            },
            "scores": {"type": "object", "additionalProperties": {"type": "number"}},
            "free": {"type": "object"},
            "whatever": {},
        },
        "required": ["text"],
    },
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"count": 3, "ratio": 0.5, "flag": False, "names": ["a", ""], "mode": "all"},
        {"either": 1},
        {"either": "1"},
        {"either": None},
        {"point": {"x": 1, "y": 2}},
        {"scores": {"a": 1, "b": 0.5}},
        {"free": {"any": ["thing", {"deep": None}]}},
        {"whatever": [1, {"a": None}]},
        {"ratio": 3},
    ],
)
def test_right_arguments_pass_unchanged(arguments: dict[str, Any]) -> None:
    given = {"text": "x"} | arguments
    checked = check_arguments(SCHEMA, given)
    assert checked == given
    assert [type(v) for v in checked.values()] == [type(v) for v in given.values()]


@pytest.mark.parametrize(
    ("name", "slip", "meant"),
    [
        ("count", "3", 3),
        ("count", 3.0, 3),
        ("ratio", "0.5", 0.5),
        ("flag", "True", True),
        ("flag", "false", False),
        ("names", '["a", "b"]', ["a", "b"]),
        ("point", '{"x": "1"}', {"x": 1}),
    ],
)
def test_slips_are_mended(name: str, slip: Any, meant: Any) -> None:
    checked = check_arguments(SCHEMA, {"text": "x", name: slip})
    assert checked[name] == meant and type(checked[name]) is type(meant)


def test_null_means_left_out() -> None:
    assert check_arguments(SCHEMA, {"text": "x", "count": None, "names": None}) == {"text": "x"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "The argument 'text' is missing. The arguments are: text, count"),
        ({"text": None}, "'text' must be text, and is null"),
        ({"text": 5}, "'text' must be text, and is 5"),
        ({"text": "x", "txt": "y"}, "Unknown argument 'txt'"),
        ({"text": "x", "count": "many"}, "'count' must be a whole number"),
        ({"text": "x", "count": 1.5}, "'count' must be a whole number"),
        ({"text": "x", "count": True}, "'count' must be a whole number"),
        ({"text": "x", "names": "a"}, "'names' must be a list"),
        ({"text": "x", "names": ["a", 1]}, r"'names\[1\]' must be text"),
        ({"text": "x", "mode": "some"}, 'must be one of "any", "all"'),
        ({"text": "x", "point": {"y": 1}}, "'point.x' is missing"),
        ({"text": "x", "point": {"x": 1, "z": 1}}, "Unknown argument 'point.z'"),
        ({"text": "x", "scores": {"a": "high"}}, "'scores.a' must be a number"),
        ({"text": "x", "either": []}, "'either' must be"),
        ({"text": "x", "either": True}, "'either' must be"),
    ],
)
def test_wrong_arguments_are_explained(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        check_arguments(SCHEMA, arguments)


def test_a_tool_without_parameters() -> None:
    assert check_arguments({"name": "t"}, {}) == {}
    with pytest.raises(ToolError, match="takes no arguments"):
        check_arguments({"name": "t"}, {"x": 1})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*SCHEMA["parameters"]["properties"], "other"]), json_values))
def test_anything_is_either_checked_or_explained(arguments: dict[str, Any]) -> None:
    try:
        checked = check_arguments(SCHEMA, arguments)
    except ToolError:
        return
    assert check_arguments(SCHEMA, checked) == checked, "checking again changes nothing"


_KEYWORDS = [
    "x", "type", "properties", "required", "additionalProperties", "anyOf", "oneOf", "allOf", "$ref", "items",
    "prefixItems", "enum", "const", "minimum", "maxLength", "propertyNames", "$defs", "pattern",
]  # fmt: skip
_ODD = st.recursive(
    st.sampled_from([None, True, 5, 1.5, "x", "integer", 10**30, [], {}]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(_KEYWORDS), inner, max_size=3),
    max_leaves=12,
)


@given(_ODD, _ODD)
def test_whatever_was_stored_as_a_schema_breaks_no_call(schema: Any, value: Any) -> None:
    for parameters in (schema, {"properties": {"x": schema}, "required": schema, "$defs": schema}):
        with contextlib.suppress(ToolError):
            check_arguments({"parameters": parameters}, {"x": value})


@pytest.mark.parametrize("null", [True, False])
def test_choices_within_choices_do_not_multiply(null: bool) -> None:
    choice = {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}
    parameters = {"type": "object", "properties": {"x": choice}, "$defs": {"A": choice}}
    with pytest.raises(ToolError, match="more than 20000 steps"):
        check_arguments({"name": "f", "parameters": parameters}, {"x": None if null else 1})
