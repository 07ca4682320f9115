"""Checks a model's arguments against a tool's JSON schema, for the part of JSON schema that tools use.

Small slips that lose nothing are mended (`"5"` for a number, a list written as JSON text, null for what was left out);
everything else raises ToolError with a sentence that the model can act on.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from kelpie.core.errors import ToolError

_DEPTH_MAX = 32
_NAMES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def check_arguments(json_schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the tool may be given them. `json_schema` is the tool's: {name, description, parameters}.

    Raises ToolError for a missing, unknown or wrong argument.
    """
    return _object(json_schema.get("parameters") or {}, arguments, "", 0)


def read_arguments(json_schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The arguments in the text a model sent. Raises ToolError when it is not a JSON object, or as above."""
    try:
        value: Any = json.loads(text, strict=False) if text.strip() else {}
    except ValueError as error:
        raise ToolError(f"The arguments are not valid JSON ({error}). Call again with a JSON object.") from None
    except RecursionError:
        raise ToolError("The arguments are nested too deeply.") from None
    if not isinstance(value, dict):
        raise ToolError("The arguments must be a JSON object, with one entry for each parameter.")
    return check_arguments(json_schema, cast("dict[str, Any]", value))


def _object(schema: Mapping[str, Any], given: Mapping[str, Any], where: str, depth: int) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    required: Sequence[str] = schema.get("required") or ()
    others = schema.get("additionalProperties")
    checked: dict[str, Any] = {}
    for name, value in given.items():
        path = f"{where}.{name}" if where else name
        if name in properties:
            if value is None and name not in required and not _allows(properties[name], "null"):
                continue  # how models say: left out
            checked[name] = _value(properties[name], value, path, depth)
        elif isinstance(others, Mapping):
            checked[name] = _value(cast("Mapping[str, Any]", others), value, path, depth)
        elif others or (not properties and others is None and where):
            checked[name] = value
        else:
            raise ToolError(f"There is no argument '{path}'. {_known(properties)}")
    for name in required:
        if name not in checked:
            path = f"{where}.{name}" if where else name
            raise ToolError(f"The argument '{path}' is missing. {_known(properties)}")
    return checked


def _known(properties: Mapping[str, Any]) -> str:
    return f"The arguments are: {', '.join(properties)}." if properties else "This tool takes no arguments."


def _value(schema: Mapping[str, Any], value: Any, path: str, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise ToolError(f"The argument '{path}' is nested too deeply.")
    choices: Sequence[Mapping[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or ()
    if choices:
        return _first_fit(choices, value, path, depth)
    kinds = _kinds(schema)
    if kinds and not any(_is(value, kind) for kind in kinds):
        value = _mended(value, kinds, path)
    if isinstance(value, float) and "number" not in kinds and "integer" in kinds:
        value = int(value)  # 5.0 is a whole number
    allowed: Sequence[Any] | None = schema.get("enum")
    if allowed is not None and value not in allowed:
        shown = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in allowed)
        raise ToolError(f"The argument '{path}' must be one of {shown}.")
    if isinstance(value, list) and "items" in schema:
        items = cast("list[Any]", value)
        return [_value(schema["items"], item, f"{path}[{number}]", depth + 1) for number, item in enumerate(items)]
    if isinstance(value, dict):
        return _object(schema, cast("dict[str, Any]", value), path, depth + 1)
    return value


def _first_fit(choices: Sequence[Mapping[str, Any]], value: Any, path: str, depth: int) -> Any:
    """The value as the first choice that takes it; choices that take it as it is come before those that mend it."""
    exact = [choice for choice in choices if any(_is(value, kind) for kind in _kinds(choice))]
    problem: ToolError | None = None
    for choice in [*exact, *choices]:
        try:
            return _value(choice, value, path, depth + 1)
        except ToolError as error:
            problem = problem or error
    raise problem or ToolError(f"The argument '{path}' fits none of its types.")


def _kinds(schema: Mapping[str, Any]) -> tuple[str, ...]:
    kind = schema.get("type")
    if kind is None:
        return ()
    return (kind,) if isinstance(kind, str) else tuple(kind)


def _allows(schema: Mapping[str, Any], kind: str) -> bool:
    choices: Sequence[Mapping[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or ()
    kinds = _kinds(schema)
    return kind in kinds or (not kinds and not choices) or any(_allows(choice, kind) for choice in choices)


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "null":
            return value is None
        case _:
            return True


def _mended(value: Any, kinds: Sequence[str], path: str) -> Any:
    """A text that spells a value of the right kind becomes that value. Raises ToolError for everything else."""
    if isinstance(value, str) and "string" not in kinds:
        try:
            meant: Any = json.loads(value.lower() if "boolean" in kinds else value)
        except (ValueError, RecursionError):
            meant = value
        if any(_is(meant, kind) for kind in kinds):
            return meant
    wanted = " or ".join(_NAMES.get(kind, kind) for kind in kinds)
    raise ToolError(f"The argument '{path}' must be {wanted}, and is {_described(value)}.")


def _described(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"
