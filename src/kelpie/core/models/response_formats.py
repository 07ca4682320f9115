"""The response format of a model, as clients ask for it: text, a JSON object, or JSON of a schema."""

import re
from collections.abc import Mapping
from typing import Any, cast

TYPES = ("text", "json_object", "json_schema")
NAME_DEFAULT = "response"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_format(value: Mapping[str, Any]) -> None:
    """Raises ValueError, with the remedy, for a format that no model accepts."""
    kind: object = value.get("type")
    if kind not in TYPES:
        raise ValueError(f"the type of a response format must be one of {', '.join(TYPES)}")
    if kind == "json_schema" and schema_of(value) is None:
        raise ValueError("a json_schema needs the JSON schema: {'json_schema': {'name': ..., 'schema': {...}}}")


def schema_of(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The JSON schema in a response format, which may contain it with a name or alone."""
    given: object = value.get("json_schema")
    if not isinstance(given, Mapping):
        return None
    named = cast("Mapping[str, Any]", given)
    schema: object = named.get("schema", None if "name" in named else named)
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) and schema else None


def named(value: Mapping[str, Any]) -> dict[str, Any]:
    """A format of type json_schema in full: the schema with a name that every provider accepts."""
    given = cast("Mapping[str, Any]", value.get("json_schema") or {})
    name: object = given.get("name")
    usable = isinstance(name, str) and _NAME.fullmatch(name)
    more = {key: given[key] for key in ("description", "strict") if "schema" in given and given.get(key) is not None}
    return {
        "type": "json_schema",
        "json_schema": {"name": name if usable else NAME_DEFAULT, "schema": schema_of(value), **more},
    }
