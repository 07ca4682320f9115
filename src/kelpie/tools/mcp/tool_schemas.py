"""Schemas of remote tools as models need them: mended where that loses nothing, refused with the reason otherwise.

The status has Letta's words: a schema that providers can check strictly, or one that they cannot.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kelpie.mcp.client.answers import RemoteTool
from kelpie.mcp.protocol.http_headers import mirrored_properties

STRICT, NON_STRICT = "STRICT_COMPLIANT", "NON_STRICT_ONLY"
STATUS_KEY, WARNINGS_KEY = "mcp:SCHEMA_STATUS", "mcp:SCHEMA_WARNINGS"
SCHEMA_BYTES_MAX = 64 * 1024
DESCRIPTION_CHARS_MAX = 10_000
DEPTH_MAX = 30
NAME_CHARS_MAX = 64

_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_LOOSE = ("oneOf", "allOf", "not", "if", "patternProperties", "dependentSchemas", "propertyNames")
_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")  # names with a schema each
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_TEXTS = frozenset({"title", "description", "pattern", "format", "$comment", "$id", "$anchor"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_COUNTS = frozenset(f"{bound}{what}" for bound in ("min", "max") for what in ("Length", "Items", "Properties"))
_FLAGS = frozenset({"uniqueItems", "deprecated", "readOnly", "writeOnly"})
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})


class SchemaRefused(ValueError):
    """The tool cannot be offered to a model; the text says why."""


@dataclass(frozen=True, slots=True)
class ReadySchema:
    """The schema of a tool with its status; `warnings` are what was mended or stays loose."""

    parameters: Mapping[str, Any]
    status: str
    warnings: tuple[str, ...]


def ready_schema(tool: RemoteTool) -> ReadySchema:
    """Raises SchemaRefused."""
    try:
        size = len(orjson.dumps(tool.input_schema))
    except (TypeError, RecursionError):
        raise SchemaRefused("its schema is not plain JSON") from None
    if size > SCHEMA_BYTES_MAX:
        raise SchemaRefused(f"its schema has {size} bytes, and the limit is {SCHEMA_BYTES_MAX}")
    if tool.input_schema.get("type", "object") != "object":
        raise SchemaRefused("its schema is not of type 'object'")
    try:
        mirrored_properties(tool.input_schema)
    except ValueError as error:
        raise SchemaRefused(f"its schema is not valid: {error}") from None
    mending = _Mending(tool.input_schema)
    parameters = mending.schema({**tool.input_schema, "type": "object"}, "", 0)
    parameters.pop("$schema", None)
    parameters.setdefault("properties", {})
    if "additionalProperties" not in tool.input_schema:
        parameters["additionalProperties"] = False
    status = NON_STRICT if mending.loose else STRICT
    return ReadySchema(parameters, status, tuple(dict.fromkeys((*mending.mended, *mending.loose))))


class _Mending:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self.mended: list[str] = []
        self.loose: list[str] = []
        self._root = root

    def schema(self, given: Any, where: str, depth: int) -> dict[str, Any]:
        if depth > DEPTH_MAX:
            raise SchemaRefused(f"its schema is nested deeper than {DEPTH_MAX} levels")
        if isinstance(given, bool):  # any value, or none
            return {} if given else {"not": {}}
        if not isinstance(given, Mapping):
            self.mended.append(f"{where or 'the schema'}: {type(given).__name__} replaced by a schema for any value")
            return {}
        if isinstance(given.get("items"), list):  # of older drafts
            given = {**given, "prefixItems": given["items"], "items": True}
        made = {
            str(key): self._part(str(key), value, where, depth)
            for key, value in given.items()
            if self._makes_sense(str(key), value, where)
        }
        self._mend_type(made, where)
        self._mend_object(made, where, depth)
        if made.get("type") == "array" and "items" not in made and "prefixItems" not in made:
            made["items"] = {}
            self.mended.append(f"{where or 'the schema'}: a list without 'items'")
        if "$ref" in made and not self._resolves(made["$ref"]):
            self.mended.append(f"{where or 'the schema'}: '{str(made.pop('$ref'))[:80]}' leads nowhere")
        self.loose += (f"{where or 'the schema'}: uses '{key}'" for key in _LOOSE if key in made)
        return made

    def _makes_sense(self, key: str, value: Any, where: str) -> bool:
        """False for a keyword that is left out because its value is of another type than it must be."""
        if key in _LISTS or key == "enum":
            right = isinstance(value, list) and bool(value)
        elif key in _ONE:
            right = isinstance(value, Mapping | bool)
        elif key in _TEXTS:
            right = isinstance(value, str)
        elif key in _FLAGS:
            right = isinstance(value, bool)
        elif key in _NUMBERS:
            right = isinstance(value, int | float) and not isinstance(value, bool)
        elif key in _COUNTS:
            right = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        else:
            right = True
        if not right:
            self.mended.append(f"{where or 'the schema'}: '{key}' cannot be {str(value)[:40]}")
        return right

    def _part(self, key: str, value: Any, where: str, depth: int) -> Any:
        path = f"{where}.{key}" if where else key
        if key in _SCHEMAS and isinstance(value, Mapping):
            return {str(name): self.schema(each, f"{path}.{name}", depth + 1) for name, each in value.items()}
        if key in _LISTS and isinstance(value, list):
            return [self.schema(each, f"{path}.{at}", depth + 1) for at, each in enumerate(value)]
        if key in _ONE and isinstance(value, Mapping):
            return self.schema(value, path, depth + 1)
        if key in _SCHEMAS:
            self.mended.append(f"{path}: not an object")
            return {}
        return value

    def _mend_type(self, made: dict[str, Any], where: str) -> None:
        if "type" not in made:
            return
        kinds = made["type"]
        named = kinds if isinstance(kinds, list) else [kinds]
        if not named or not all(isinstance(kind, str) and kind in _TYPES for kind in named):
            self.mended.append(f"{where or 'the schema'}: unknown type {str(kinds)[:40]}")
            del made["type"]
        elif isinstance(kinds, list):
            made["type"] = list(dict.fromkeys(kinds))

    def _mend_object(self, made: dict[str, Any], where: str, depth: int) -> None:
        if "required" in made:
            names, given = made.get("properties") or {}, made["required"]
            kept = (
                [each for each in given if isinstance(each, str) and each in names] if isinstance(given, list) else []
            )
            if kept != made["required"]:
                self.mended.append(f"{where or 'the schema'}: 'required' names properties that do not exist")
            made["required"] = kept
        if depth and "properties" in made and made.get("additionalProperties") is not False:
            self.loose.append(f"{where}: an object with further properties")

    def _resolves(self, reference: Any) -> bool:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return False
        found: Any = self._root
        for part in reference[1:].strip("/").split("/") if reference not in ("#", "#/") else ():
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        return found is not None


def plain_name(name: str) -> str:
    """A name that every provider accepts; the server's own if it is one already."""
    plain = _NAME.sub("_", name).strip("_") or "tool"
    if plain == name and len(name) <= NAME_CHARS_MAX:
        return name
    if len(plain) <= NAME_CHARS_MAX:
        return plain
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: NAME_CHARS_MAX - 9]}_{mark}"


def namespaced(server: str, name: str) -> str:
    """The name of a tool whose own is taken."""
    return plain_name(f"{plain_name(server)}__{name}")
