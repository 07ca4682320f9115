"""Sentences for a request that does not validate: the field, what is wrong with it, and never the value of a body.

A body may hold secrets, and these sentences are logged. Only the ids and numbers of a path or a query are shown.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

SENTENCES_MAX = 3
FIELD_CHARS_MAX = 200
VALUE_CHARS_MAX = 80
MESSAGE_CHARS_MAX = 500

_PLACES = ("body", "query", "path", "header", "cookie")
_ID_PATTERN = re.compile(r"\^([a-z_-]+)-\[0-9a-f\]")
_KINDS = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
    "datetime": "a date and time, such as 2026-01-31T12:00:00Z",
}
_LIMITS = {
    "greater_than": ("gt", "must be greater than {}"),
    "greater_than_equal": ("ge", "must be at least {}"),
    "less_than": ("lt", "must be less than {}"),
    "less_than_equal": ("le", "must be at most {}"),
    "string_too_short": ("min_length", "must have at least {} characters"),
    "string_too_long": ("max_length", "must have at most {} characters"),
    "too_short": ("min_length", "must have at least {} items"),
    "too_long": ("max_length", "must have at most {} items"),
    "enum": ("expected", "must be one of {}"),
    "literal_error": ("expected", "must be one of {}"),
}


def sentences(errors: Sequence[Mapping[str, Any]]) -> str:
    """All errors of a request, in words; those beyond a few are counted."""
    told = [_sentence(error) for error in errors[:SENTENCES_MAX]]
    if len(errors) > SENTENCES_MAX:
        told.append(f"There are {len(errors) - SENTENCES_MAX} more errors.")
    return " ".join(dict.fromkeys(told))


def prefix_of_id(error: Mapping[str, Any]) -> str | None:
    """The prefix of the id that a path or query must hold, if the error is about one."""
    match = _ID_PATTERN.match(str(error.get("ctx", {}).get("pattern", "")))
    return match[1] if match else None


def _sentence(error: Mapping[str, Any]) -> str:
    kind, place = str(error.get("type", "")), tuple(map(str, error.get("loc", ())))
    if kind == "json_invalid":
        return f"The body is not valid JSON: {_cut(str(error.get('ctx', {}).get('error', error.get('msg', ''))))}."
    field = ".".join(place[1:] if place[:1] and place[0] in _PLACES else place)[:FIELD_CHARS_MAX]
    if kind == "missing":
        return f"{field} is missing." if field else "The request has no body; send a JSON object."
    if kind == "extra_forbidden":
        return f"{field} is not a known field; remove it."
    what = _wrong(error, kind, place[:1])
    return f"{field}: {what}." if field else f"{what[:1].upper()}{what[1:]}."


def _wrong(error: Mapping[str, Any], kind: str, place: tuple[str, ...]) -> str:
    facts: Mapping[str, Any] = error.get("ctx") or {}
    if (prefix := prefix_of_id(error)) is not None:
        given = f"'{str(error.get('input'))[:VALUE_CHARS_MAX]}'" if place in (("path",), ("query",)) else "this"
        return f"{given} is not an id of the form {prefix}-<uuid4>"
    if kind in _LIMITS and _LIMITS[kind][0] in facts:
        name, words = _LIMITS[kind]
        return "must not be empty" if (name, facts[name]) == ("min_length", 1) else words.format(facts[name])
    if kind == "model_attributes_type":
        return "must be an object"
    base, _, end = kind.rpartition("_")
    if end in ("type", "parsing") and base in _KINDS:
        return f"must be {_KINDS[base]}"
    return _cut(str(error.get("msg", "is invalid")).removeprefix("Value error, "))


def _cut(text: str) -> str:
    return (text if len(text) <= MESSAGE_CHARS_MAX else text[:MESSAGE_CHARS_MAX] + "…").rstrip(".")
