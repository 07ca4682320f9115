"""Check of a model's arguments against a tool's JSON schema, for the part of JSON schema that tools use.

Small mistakes that lose nothing are repaired (`"5"` for a number, a list written as JSON text, null for an omitted
value); everything else raises ToolError with a sentence that the model can act on. Parts of a schema beyond types,
choices, sizes and limits (a `pattern`, a `format`) are left to the tool itself. A stored schema may hold anything: an
invalid part of it is ignored.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from kelpie.core.errors import ToolError
from kelpie.tools.calls import json_kinds as kinds_of
from kelpie.tools.calls.plain_types import WHOLE_NUMBER

_DEPTH_MAX = 32
_STEPS_MAX = 20_000  # choices within choices multiply, and a schema of a few bytes could take forever
_LIMITS = (  # key, test for a value that breaks it, and words for the error
    ("minimum", lambda value, limit: value < limit, "at least {}"),
    ("maximum", lambda value, limit: value > limit, "at most {}"),
    ("exclusiveMinimum", lambda value, limit: value <= limit, "more than {}"),
    ("exclusiveMaximum", lambda value, limit: value >= limit, "less than {}"),
)
_SIZES = {str: ("minLength", "maxLength", "letters"), list: ("minItems", "maxItems", "items")}

Schema = Mapping[str, Any]


class WrongArguments(ToolError):
    """An argument is missing, or the tool has no such argument."""


def check_arguments(json_schema: Schema, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in the form the tool takes. `json_schema` is the tool's: {name, description, parameters}.

    Raises WrongArguments for a missing or unknown argument, and ToolError for an invalid value.
    """
    parameters = kinds_of.mapping(json_schema.get("parameters"))
    try:
        return _Check(parameters).object(parameters, arguments, "", 0)
    except _TooComplex:
        raise ToolError(
            f"The arguments take more than {_STEPS_MAX} steps to check against the tool's schema. Send fewer values, "
            "or give the tool a schema with fewer choices within choices."
        ) from None


class _TooComplex(Exception):
    """The check has used up its steps. Not a ToolError: a choice that does not fit must not catch it."""


class _Check:
    """One check of arguments; knows the definitions that the schema refers to."""

    def __init__(self, parameters: Schema) -> None:
        self._steps = 0
        self._definitions: dict[str, Schema] = {
            f"#/{place}/{name}": schema
            for place in ("$defs", "definitions")
            for name, schema in kinds_of.mapping(parameters.get(place)).items()
            if isinstance(schema, Mapping)
        }

    def object(self, schema: Schema, given: Mapping[str, Any], where: str, depth: int) -> dict[str, Any]:
        properties = kinds_of.mapping(schema.get("properties"))
        required = [name for name in kinds_of.listed(schema.get("required")) if isinstance(name, str)]
        others = schema.get("additionalProperties")
        checked: dict[str, Any] = {}
        for name, value in given.items():
            path = f"{where}.{name}" if where else name
            if name in properties:
                if value is None and name not in required and not self._allows_null(properties[name], 0):
                    continue  # how models say: left out
                checked[name] = self._value(properties[name], value, path, depth)
                continue
            _check_key(schema, name, path)
            if isinstance(others, Mapping):
                checked[name] = self._value(cast("Schema", others), value, path, depth)
            elif others or (not properties and others is None and where):
                checked[name] = value
            else:
                raise WrongArguments(f"Unknown argument '{path}'. {_known(properties)}")
        for name in required:
            if name not in checked:
                path = f"{where}.{name}" if where else name
                raise WrongArguments(f"The argument '{path}' is missing. {_known(properties)}")
        return checked

    def _spend(self) -> None:
        self._steps += 1
        if self._steps > _STEPS_MAX:
            raise _TooComplex

    def _value(self, schema: Any, value: Any, path: str, depth: int) -> Any:
        self._spend()
        if depth > _DEPTH_MAX:
            raise ToolError(f"The argument '{path}' is nested too deeply.")
        schema = self._resolved(schema)
        choices = _choices(schema)
        if choices:
            return self._first_fit(choices, value, path, depth)
        kinds = kinds_of.named(schema)
        if kinds and not any(kinds_of.holds(value, kind) for kind in kinds):
            value = _repaired(value, kinds, path)
        if isinstance(value, float) and "number" not in kinds and "integer" in kinds:
            value = int(value)  # 5.0 is a whole number
        _check_choice(schema, value, path)
        _check_limits(schema, value, path)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            places = zip(self._places(schema), items, strict=False)
            return [self._value(one, item, f"{path}[{number}]", depth + 1) for number, (one, item) in enumerate(places)]
        if isinstance(value, dict):
            return self.object(schema, cast("dict[str, Any]", value), path, depth + 1)
        return value

    def _resolved(self, schema: Any) -> Schema:
        """The schema once references are followed. One that is no object, or whose reference is missing, allows
        anything.
        """
        for _ in range(_DEPTH_MAX):
            if not isinstance(schema, Mapping):
                return {}
            found = cast("Schema", schema)
            parts = kinds_of.listed(found.get("allOf"))
            if "$ref" in found:
                schema = self._definitions.get(str(found["$ref"]))
            elif len(parts) == 1 and isinstance(parts[0], Mapping):
                schema = {**{key: value for key, value in found.items() if key != "allOf"}, **parts[0]}
            else:
                return found
        return {}

    def _places(self, schema: Schema) -> Iterator[Any]:
        """The schema of each item of a list, without end."""
        yield from kinds_of.listed(schema.get("prefixItems"))
        while True:
            yield schema.get("items", {})

    def _first_fit(self, choices: Sequence[Any], value: Any, path: str, depth: int) -> Any:
        """The value as the first choice that takes it; those that take it unchanged come first."""
        meant = [self._resolved(choice) for choice in choices]
        exact = [one for one in meant if any(kinds_of.holds(value, kind) for kind in kinds_of.named(one))]
        problem: ToolError | None = None
        for choice in [*exact, *meant]:
            try:
                return self._value(choice, value, path, depth + 1)
            except ToolError as error:
                problem = problem or error
        raise problem or ToolError(f"The argument '{path}' has none of the allowed types.")

    def _allows_null(self, schema: Any, depth: int) -> bool:
        self._spend()
        schema = self._resolved(schema)
        choices = _choices(schema)
        kinds = kinds_of.named(schema)
        if not kinds and not choices:
            return True
        return "null" in kinds or (depth < _DEPTH_MAX and any(self._allows_null(one, depth + 1) for one in choices))


def _choices(schema: Schema) -> Sequence[Any]:
    return kinds_of.listed(schema.get("anyOf")) or kinds_of.listed(schema.get("oneOf"))


def _known(properties: Schema) -> str:
    return f"The arguments are: {', '.join(properties)}." if properties else "This tool takes no arguments."


def _check_key(schema: Schema, name: str, path: str) -> None:
    rule: Any = schema.get("propertyNames")
    if not isinstance(rule, Mapping):
        return
    names = cast("Schema", rule)
    if names.get("pattern") == WHOLE_NUMBER and not (name.lstrip("-").isdecimal() and name.rfind("-") <= 0):
        raise ToolError(f"The key '{path}' must be a whole number.")
    if isinstance(names.get("enum"), list) and name not in names["enum"]:
        raise ToolError(f"The key '{path}' must be one of {_listed(names['enum'])}.")


def _check_choice(schema: Schema, value: Any, path: str) -> None:
    allowed: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(allowed, list) and not any(kinds_of.same(value, one) for one in cast("list[Any]", allowed)):
        raise ToolError(f"The argument '{path}' must be one of {_listed(cast('list[Any]', allowed))}.")


def _check_limits(schema: Schema, value: Any, path: str) -> None:
    if kinds_of.holds(value, "number"):
        for key, breaks, told in _LIMITS:
            limit = schema.get(key)
            if kinds_of.holds(limit, "number") and breaks(value, limit):
                raise ToolError(f"The argument '{path}' must be {told.format(limit)}, and is {value}.")
    for kind, (least, most, what) in _SIZES.items():
        if isinstance(value, kind):
            size = len(value)
            if kinds_of.holds(schema.get(least), "integer") and size < schema[least]:
                raise ToolError(f"The argument '{path}' must have at least {schema[least]} {what}, and has {size}.")
            if kinds_of.holds(schema.get(most), "integer") and size > schema[most]:
                raise ToolError(f"The argument '{path}' must have at most {schema[most]} {what}, and has {size}.")


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(json.dumps(value, ensure_ascii=False) for value in values)


def _repaired(value: Any, kinds: Sequence[str], path: str) -> Any:
    """A text that spells a value of the right kind becomes that value. Raises ToolError for everything else."""
    if isinstance(value, str) and "string" not in kinds:
        try:
            meant: Any = json.loads(value.lower() if "boolean" in kinds else value)
        except (ValueError, RecursionError):
            meant = value
        if any(kinds_of.holds(meant, kind) for kind in kinds):
            return meant
    wanted = " or ".join(kinds_of.WORDS.get(kind, kind) for kind in kinds)
    raise ToolError(f"The argument '{path}' must be {wanted}, and is {_described(value)}.")


def _described(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"
