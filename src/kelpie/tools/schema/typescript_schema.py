"""The JSON schema of a TypeScript tool, read from the signature and the JSDoc of its function. Nothing is executed.

The tool is the last exported function at the top level, or the last function when none is exported.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kelpie.core.errors import InvalidInput
from kelpie.tools.schema.source import FIELD, check_text
from kelpie.tools.schema.typescript_tokens import Token, tokens
from kelpie.tools.schema.typescript_types import SUPPORTED, Reader, UnsupportedType

_PARAM = re.compile(r"@param\s+(?:\{[^}]*\}\s*)?\[?([\w$]+)[^\s]*\s*(?:-\s*)?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    place: int  # of the first token after the opening parenthesis
    doc: str
    exported: bool


def schema_from_typescript(code: str) -> dict[str, Any]:
    """{name, description, parameters} of the tool in the source. Raises InvalidInput."""
    check_text(code)
    found = list(tokens(code))
    functions, types = _outline(found)
    chosen = [one for one in functions if one.exported] or functions
    if not chosen:
        raise InvalidInput(FIELD, "contains no top-level function; write `export function name(...) {...}`")
    function = chosen[-1]
    description, described = _read_doc(function.doc)
    try:
        properties, required = _parameters(Reader(found, function.place, types), described)
    except UnsupportedType as error:
        raise InvalidInput(FIELD, f"the signature of {function.name} has {error}; use {SUPPORTED}") from None
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"name": function.name, "description": description, "parameters": parameters}


def _outline(found: Sequence[Token]) -> tuple[list[_Found], dict[str, int]]:
    """The functions at the top level, and the position of each type declared there."""
    functions: list[_Found] = []
    types: dict[str, int] = {}
    depth, doc, exported = 0, "", False
    for place, token in enumerate(found):
        if token.kind == "doc":
            doc = token.value if depth == 0 else doc
            continue
        if token.kind == "sign" and token.value in "{}":
            depth += 1 if token.value == "{" else -1
        if depth > 0 or token.kind != "word":
            continue
        match token.value:
            case "export":
                exported = True
                continue
            case "default" | "async" | "declare":
                continue
            case "function" | "const" | "let":
                function = _function(found, place, token.value)
                if function is not None:
                    functions.append(_Found(function[0], function[1], doc, exported))
            case "interface" | "type":
                _declare(found, place, types)
            case _:
                pass
        doc, exported = "", False
    return functions, types


def _function(found: Sequence[Token], place: int, keyword: str) -> tuple[str, int] | None:
    """The name of the function that is declared here, and the position of its parameters."""
    ahead = [token.value for token in found[place + 1 : place + 8]]
    name = next((value for value in ahead[:2] if value != "*"), "")
    if keyword == "function":
        start = _after(found, place + 1, "(", stop="{;")
    else:
        equals = _after(found, place + 1, "=", stop=";(")
        is_async = equals is not None and equals < len(found) and found[equals].value == "async"
        start = None if equals is None else equals + is_async
        start = start + 1 if start is not None and start < len(found) and found[start].value == "(" else None
    return None if start is None or not name or name == "(" else (name, start)


def _after(found: Sequence[Token], place: int, sign: str, stop: str) -> int | None:
    for number in range(place, min(place + 64, len(found))):
        if found[number].kind == "sign":
            if found[number].value == sign:
                return number + 1
            if found[number].value in stop:
                return None
    return None


def _declare(found: Sequence[Token], place: int, types: dict[str, int]) -> None:
    match [token.value for token in found[place + 1 : place + 3]]:
        case [name, "{"] if found[place].value == "interface":
            types[name] = place + 2
        case [name, "="] if found[place].value == "type":
            types[name] = place + 3
        case _:
            pass


def _parameters(reader: Reader, described: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    while not reader.take(")"):
        token = reader.next()
        if token.kind == "doc":
            continue
        if token.kind != "word":
            raise UnsupportedType(f"'{token.value[:40]}' instead of a parameter name")
        optional = reader.take("?")
        schema, missing = reader.type() if reader.take(":") else ({}, False)
        optional = _skip_default(reader) or optional or missing
        if described.get(token.value):
            schema = schema | {"description": described[token.value]}
        properties[token.value] = schema
        if not optional:
            required.append(token.value)
        if reader.peek() != ")":
            reader.expect(",")
    return properties, required


def _skip_default(reader: Reader) -> bool:
    """Skips `= value`, whatever the value is."""
    if not reader.take("="):
        return False
    depth = 0
    while depth or reader.peek() not in {",", ")"}:
        token = reader.next()
        if token.kind == "sign":
            depth += (token.value in "([{") - (token.value in ")]}")
    return True


def _read_doc(text: str) -> tuple[str, dict[str, str]]:
    lines = [line.strip().removeprefix("*").strip() for line in text.strip().split("\n")]
    starts = [number for number, line in enumerate(lines) if line.startswith("@")]
    described: dict[str, str] = {}
    for start, end in pairwise([*starts, len(lines)]):
        if found := _PARAM.match("\n".join(lines[start:end])):
            described[found[1]] = found[2].strip()
    return "\n".join(lines[: starts[0]] if starts else lines).strip(), described
