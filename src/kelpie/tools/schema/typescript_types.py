"""TypeScript types as JSON schema: the types of parameters, and the interfaces and aliases of the same source."""

from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.tools.schema.typescript_tokens import Token

DEPTH_MAX = 24
SIZE_MAX = 5000
PART_CHARS = 40
SUPPORTED = (
    "string, number, boolean, null, any, Date, T[], Array<T>, Record<string, T>, [A, B], { a: T; b?: T }, "
    "unions, literals, or an interface or type of the same source"
)

Schema = dict[str, Any]

_PLAIN: dict[str, Schema] = {
    "string": {"type": "string"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "bigint": {"type": "integer"},
    "null": {"type": "null"},
    "any": {},
    "unknown": {},
    "object": {"type": "object"},
    "Date": {"type": "string", "format": "date-time"},
}
_LISTS = frozenset({"Array", "ReadonlyArray", "Set"})
_MISSING: Schema = {"not": {}}  # the type of what is not there


class UnsupportedType(ValueError):
    """The type has no JSON schema; the text says what was found."""


class Reader:
    """Reads types from a position in the tokens on. `named` are the positions of the source's types."""

    def __init__(self, tokens: Sequence[Token], place: int, named: Mapping[str, int]) -> None:
        self.tokens = tokens
        self.place = place
        self._named = named
        self._depth = 0
        self._left = SIZE_MAX

    def peek(self) -> str:
        """The next token, if it is none of the texts of the source; else empty."""
        if self.place >= len(self.tokens) or self.tokens[self.place].kind == "text":
            return ""
        return self.tokens[self.place].value

    def take(self, value: str) -> bool:
        """Skips the next token if it is this one."""
        if self.peek() == value:
            self.place += 1
            return True
        return False

    def next(self) -> Token:
        """Raises UnsupportedType at the end of the source."""
        if self.place >= len(self.tokens):
            raise UnsupportedType("an unexpected end of the source")
        self.place += 1
        return self.tokens[self.place - 1]

    def expect(self, value: str) -> None:
        found = self.next()
        if found.value != value:
            raise UnsupportedType(f"'{found.value[:40]}' instead of '{value}'")

    def type(self) -> tuple[Schema, bool]:
        """The type that begins here, and True if it is optional. Raises UnsupportedType."""
        self._depth += 1
        self._spend(1)
        if self._depth > DEPTH_MAX:
            raise UnsupportedType("a type that is nested too deeply")
        self.take("|")
        choices = [self._one()]
        while self.take("|"):
            choices.append(self._one())
        self._depth -= 1
        real = [choice for choice in choices if choice != _MISSING]
        if not real:
            raise UnsupportedType("undefined")
        return _union(real), len(real) < len(choices)

    def _spend(self, parts: int) -> None:
        self._left -= parts
        if self._left < 0:
            raise UnsupportedType(f"more than {SIZE_MAX} types, or texts that are too long")

    def _one(self) -> Schema:
        while self.take("readonly"):
            continue
        found = self._primary()
        while self.peek() == "[":
            self.place += 1
            self.expect("]")
            found = {"type": "array", "items": found}
        if self.peek() in {"&", "."}:
            raise UnsupportedType(f"'{self.peek()}'")
        return found

    def _primary(self) -> Schema:
        token = self.next()
        if token.kind == "text":
            self._spend(1 + len(token.value) // PART_CHARS)
            return {"type": "string", "enum": [token.value]}
        if token.kind == "number" or (token.value == "-" and self.place < len(self.tokens)):
            return _number(token.value if token.kind == "number" else f"-{self.next().value}")
        match token.value:
            case "(":
                found, _ = self.type()
                self.expect(")")
                return found
            case "{":
                return self._members()
            case "[":
                return self._tuple()
            case "true" | "false":
                return {"type": "boolean", "enum": [token.value == "true"]}
            case "undefined" | "void":
                return dict(_MISSING)
            case name if name in self._named and token.kind == "word":
                return self._elsewhere(self._named[name])
            case name:
                return self._generic(name)

    def _elsewhere(self, place: int) -> Schema:
        """The type that is declared at another position of the source."""
        here, self.place = self.place, place
        found, _ = self.type()
        self.place = here
        return found

    def _generic(self, name: str) -> Schema:
        arguments: list[Schema] = []
        if self.take("<"):
            arguments.append(self.type()[0])
            while self.take(","):
                arguments.append(self.type()[0])
            self.expect(">")
        if name in _LISTS:
            found: Schema = {"type": "array", "items": arguments[0] if arguments else {}}
            return found | {"uniqueItems": True} if name == "Set" else found
        if name in {"Record", "Map"} and len(arguments) == 2:
            return {"type": "object", "additionalProperties": arguments[1]} if arguments[1] else {"type": "object"}
        if name in _PLAIN and not arguments:
            return dict(_PLAIN[name])
        raise UnsupportedType(f"'{name[:40]}'")

    def _tuple(self) -> Schema:
        places: list[Schema] = []
        while not self.take("]"):
            places.append(self.type()[0])
            if self.peek() != "]":
                self.expect(",")
        count = len(places)
        found: Schema = {"type": "array", "prefixItems": places, "items": _union(places) if places else {}}
        return found | {"minItems": count, "maxItems": count}

    def _members(self) -> Schema:
        properties: dict[str, Schema] = {}
        required: list[str] = []
        found: Schema = {"type": "object", "properties": properties, "required": required}
        remark = ""
        while not self.take("}"):
            token = self.next()
            if token.kind == "doc":
                self._spend(len(token.value) // PART_CHARS)
                remark = " ".join(token.value.replace("*", " ").split())
                continue
            if token.value in {";", ",", "readonly"} and self.peek() != ":":
                continue
            if token.value == "[":  # [key: string]: T
                self.next()
                self.expect(":")
                self.type()
                self.expect("]")
                self.expect(":")
                found["additionalProperties"] = self.type()[0] or True
                continue
            if token.kind not in {"word", "text"}:
                raise UnsupportedType(f"'{token.value[:40]}'")
            optional = self.take("?")
            self.expect(":")
            schema, missing = self.type()
            properties[token.value] = schema | {"description": remark} if remark else schema
            remark = ""
            if not (optional or missing):
                required.append(token.value)
        return found


def _number(text: str) -> Schema:
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        raise UnsupportedType(f"'{text[:40]}'") from None
    whole = value.is_integer() and abs(value) <= 2**53
    return {"type": "integer", "enum": [int(value)]} if whole else {"type": "number", "enum": [value]}


def _union(choices: Sequence[Schema]) -> Schema:
    """One schema for all; literals of one kind become one choice."""
    different: list[Schema] = []
    for choice in choices:
        same = next(
            (one for one in different if "enum" in one and "enum" in choice and one["type"] == choice["type"]), None
        )
        if same is not None:
            same["enum"].extend(value for value in choice["enum"] if value not in same["enum"])
        elif choice not in different:
            different.append({**choice, "enum": list(choice["enum"])} if "enum" in choice else choice)
    return different[0] if len(different) == 1 else {"anyOf": different}
