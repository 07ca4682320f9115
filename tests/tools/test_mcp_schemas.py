"""Schemas of remote tools: mended where that loses nothing, refused with the reason otherwise."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.mcp.client.answers import read_tool
from kelpie.tools.mcp.tool_schemas import NON_STRICT, STRICT, SchemaRefused, namespaced, plain_name, ready_schema
from kelpie.tools.mcp.tool_sync import ready

WORDS = (
    *("type", "properties", "required", "items", "$ref", "$defs", "anyOf", "oneOf", "allOf", "not", "enum", "default"),
    *("additionalProperties", "prefixItems", "patternProperties", "x-mcp-header", "object", "array", "string", "name"),
)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(allow_nan=False), st.sampled_from(WORDS))
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=25,
)


def schema(**parts: Any) -> Any:
    return ready_schema(read_tool({"name": "tool", "inputSchema": parts}))


@pytest.mark.parametrize(
    ("parts", "made", "warning"),
    [
        ({}, {"type": "object", "properties": {}, "additionalProperties": False}, None),
        ({"properties": {"a": 5}}, {"properties": {"a": {}}}, "properties.a: int replaced by a schema for any value"),
        ({"properties": [1]}, {"properties": {}}, "properties: not an object"),
        ({"properties": {"a": {"type": "text"}}}, {"properties": {"a": {}}}, "properties.a: unknown type text"),
        (
            {"properties": {"a": {"type": "array"}}},
            {"properties": {"a": {"type": "array", "items": {}}}},
            "properties.a: a list without 'items'",
        ),
        (
            {"properties": {"a": {}}, "required": ["a", "b", {}]},
            {"properties": {"a": {}}, "required": ["a"]},
            "the schema: 'required' names properties that do not exist",
        ),
        (
            {"properties": {"a": {"$ref": "https://elsewhere.example/x.json"}}},
            {"properties": {"a": {}}},
            "properties.a: 'https://elsewhere.example/x.json' leads nowhere",
        ),
        (
            {"properties": {"a": {"enum": 5, "minimum": "x", "description": ["b"], "minLength": -1}}},
            {"properties": {"a": {}}},
            "properties.a: 'enum' cannot be 5; properties.a: 'minimum' cannot be x; "
            "properties.a: 'description' cannot be ['b']; properties.a: 'minLength' cannot be -1",
        ),
        (
            {"properties": {"a": {"type": "array", "items": [{"type": "string"}, 3]}}},
            {"properties": {"a": {"type": "array", "items": True, "prefixItems": [{"type": "string"}, {}]}}},
            "properties.a.prefixItems.1: int replaced by a schema for any value",
        ),
    ],
)
def test_what_can_be_mended_is_mended(parts: Any, made: Any, warning: str | None) -> None:
    found = schema(**parts)
    assert {key: found.parameters[key] for key in made} == made
    assert "; ".join(found.warnings) == (warning or "") and found.status == STRICT


def test_what_providers_cannot_check_is_said() -> None:
    found = schema(properties={"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}})
    assert found.status == NON_STRICT and found.warnings == ("properties.a: uses 'oneOf'",)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"type": "string"}, "not of type 'object'"),
        ({"properties": {"a": {"description": "x" * 70_000}}}, "the limit is 65536"),
        ({"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}, "only allowed on text"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(parts: Any, why: str) -> None:
    with pytest.raises(SchemaRefused, match=why):
        schema(**parts)


def test_a_schema_without_end_is_refused() -> None:
    deep: Any = {}
    for _ in range(60):
        deep = {"properties": {"a": deep}}
    with pytest.raises(SchemaRefused, match="nested deeper than 30 levels"):
        schema(**deep)


def test_one_tool_that_cannot_be_used_takes_no_other_with_it() -> None:
    tools = [{"name": "good"}, {"name": "bad", "inputSchema": {"type": "array"}}, {"name": "good", "title": "again"}]
    listed, refused = ready([read_tool(each) for each in tools], ["1", "2", "3"])
    assert [each.remote.name for each in listed] == ["good"]
    assert refused == {
        "bad": "its schema is not of type 'object'",
        "good": "the server lists it twice; the first is used",
    }


@given(JSON)
def test_every_schema_is_mended_or_refused(given_schema: Any) -> None:
    try:
        found = ready_schema(read_tool({"name": "tool", "inputSchema": given_schema}))
    except SchemaRefused:
        return
    assert found.parameters["type"] == "object" and json.dumps(found.parameters)


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_every_name_becomes_one_that_providers_accept(server: str, name: str) -> None:
    for made in (plain_name(name), namespaced(server, name)):
        assert 1 <= len(made) <= 64 and all(sign.isascii() and (sign.isalnum() or sign in "_-") for sign in made)
