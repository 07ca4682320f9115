"""HTTP headers of MCP: those that repeat parts of a request's body, so that a gateway need not read it."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

VERSION = "mcp-protocol-version"
METHOD = "mcp-method"
NAME = "mcp-name"
SESSION = "mcp-session-id"
LAST_EVENT = "last-event-id"
PARAM_PREFIX = "mcp-param-"
SCHEMA_KEY = "x-mcp-header"  # of a property in a tool's schema: its value is repeated in a header

# Methods whose `mcp-name` header repeats a parameter, and which one.
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

_ENCODED = re.compile(r"=\?base64\?(.*)\?=")
_PLAIN = re.compile(r"[\x20-\x7e]*")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_MIRRORED_TYPES = frozenset({"string", "integer", "boolean"})


def encoded(value: str) -> str:
    """A value that survives in a header: as it is, or as base64 between marks."""
    if _PLAIN.fullmatch(value) and value == value.strip() and not _ENCODED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decoded(value: str | None) -> str | None:
    """The value of a header; None if there is none or it is malformed."""
    found = None if value is None else _ENCODED.fullmatch(value)
    if value is None or found is None:
        return value
    try:
        raw = base64.b64decode(found[1], validate=True)
        text = raw.decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text if base64.b64encode(raw).decode() == found[1] else None


def routing(version: str, method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a stateless request."""
    headers = {VERSION: version, METHOD: method}
    name = params.get(NAMED_BY.get(method, ""))
    return headers | ({NAME: encoded(name)} if isinstance(name, str) else {})


def mismatch(headers: Mapping[str, str], version: str, method: str, params: Mapping[str, Any]) -> str | None:
    """Why the headers (in lower case) of a stateless request do not match its body; None if they do."""
    for header, wanted in ((VERSION, version), (METHOD, method)):
        if headers.get(header) != wanted:
            return f"the header {header} must be '{wanted}', as in the body"
    name = params.get(NAMED_BY.get(method, ""))
    if isinstance(name, str) and decoded(headers.get(NAME)) != name:
        return f"the header {NAME} must repeat '{name[:80]}' from the body"
    return None


def mirrored_properties(schema: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
    """Properties of a tool's schema that headers repeat: the path of each, and the header's name after the prefix.

    Raises ValueError for a mark that is not allowed: in a place other than a named property, on a number, on an object
    or a list, or twice for one name. Such a tool cannot be called over HTTP.
    """
    found: dict[tuple[str, ...], str] = {}
    waiting: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, list):
            waiting.extend((None, each) for each in part)
        if not isinstance(part, Mapping):
            continue
        if SCHEMA_KEY in part:
            found[_checked_path(path, part, found)] = part[SCHEMA_KEY]
        for key, value in part.items():
            if key == "properties" and isinstance(value, Mapping):
                waiting.extend((None if path is None else (*path, name), each) for name, each in value.items())
            elif key not in ("default", "examples", "const", "enum"):
                waiting.append((None, value if not isinstance(value, Mapping) or _is_schema(key) else _each(value)))
    return found


def _is_schema(key: str) -> bool:
    return key not in ("$defs", "definitions", "patternProperties", "dependentSchemas")


def _each(named: Mapping[str, Any]) -> list[Any]:
    return list(named.values())


def _checked_path(path: tuple[str, ...] | None, part: Mapping[str, Any], found: Mapping[Any, str]) -> tuple[str, ...]:
    name = part[SCHEMA_KEY]
    if not path:
        raise ValueError(f"{SCHEMA_KEY} is only allowed on named properties")
    where = ".".join(path)
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise ValueError(f"{SCHEMA_KEY} of '{where}' is not the name of a header")
    if part.get("type") not in _MIRRORED_TYPES:
        raise ValueError(f"{SCHEMA_KEY} of '{where}' is only allowed on text, whole numbers and booleans")
    if name.lower() in (other.lower() for other in found.values()):
        raise ValueError(f"{SCHEMA_KEY} '{name}' is used twice")
    return path


def mirrored(properties: Mapping[tuple[str, ...], str], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that repeat arguments of a call."""
    headers: dict[str, str] = {}
    for path, name in properties.items():
        value: Any = arguments
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            headers[PARAM_PREFIX + name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            headers[PARAM_PREFIX + name] = encoded(str(value))
    return headers
