"""Strict tool schemas: with them OpenAI makes sure that a call's arguments match the schema.

Strict schemas may use few keywords, every property must be required, and no object may have further properties. A
schema that is not of this kind is sent as it is: making an optional argument required would change what the tool gets.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.llm.provider.interface import ToolSchema

_KEYWORDS = frozenset(
    {"type", "properties", "required", "items", "enum", "const", "anyOf", "description", "title",
     "additionalProperties"}
)  # fmt: skip
_DEPTH_MAX = 5  # of nested objects and lists


def function(tool: ToolSchema, *, strict: bool) -> dict[str, Any]:
    """The function of a tool; it is strict where that is wanted and its schema allows it."""
    plain = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    parameters = closed(tool.parameters) if strict else None
    if parameters is None or parameters.get("type") != "object":
        return plain
    return {**plain, "parameters": parameters, "strict": True}


def closed(schema: object, depth: int = 0) -> dict[str, Any] | None:
    """The schema in strict form: every object refuses further properties. None when it has no such form."""
    if not isinstance(schema, Mapping) or depth > _DEPTH_MAX or not _KEYWORDS.issuperset(schema):
        return None
    found: dict[str, Any] = dict(schema)
    if "properties" in schema or schema.get("type") == "object":
        properties = _each(schema.get("properties"), depth)
        if properties is None or schema.get("additionalProperties") not in (None, False):
            return None
        if set(schema.get("required") or ()) != set(properties):
            return None
        found |= {"properties": properties, "required": list(properties), "additionalProperties": False}
    elif "additionalProperties" in schema or not ("type" in schema or "anyOf" in schema):
        return None
    if "items" in schema or schema.get("type") == "array":
        items = closed(schema.get("items"), depth + 1)
        if items is None:
            return None
        found["items"] = items
    if "anyOf" in schema:
        choices = schema["anyOf"] if isinstance(schema["anyOf"], Sequence) else ()
        closed_choices = [closed(choice, depth + 1) for choice in choices]
        if not closed_choices or None in closed_choices:
            return None
        found["anyOf"] = closed_choices
    return found


def _each(properties: object, depth: int) -> dict[str, Any] | None:
    if not isinstance(properties, Mapping):
        return None
    found = {str(name): closed(schema, depth + 1) for name, schema in properties.items()}
    return None if None in found.values() else found
