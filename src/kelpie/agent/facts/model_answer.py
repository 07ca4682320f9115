"""Answer of a model that was asked for facts: its size is bounded, and nothing of it is trusted.

An answer in another form than the requested one is refused as a whole; single entries without content are left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson

from kelpie.core.memory.facts import Link

ENTITIES_MAX = 50
FACTS_MAX = 50
ALIASES_MAX = 10
NAME_CHARS_MAX = 200
VALUE_CHARS_MAX = 500
STATEMENT_CHARS_MAX = 1_000


class UnreadableAnswer(ValueError):
    """The answer has not the form that was asked for."""


@dataclass(frozen=True, slots=True)
class ExtractedEntity:
    name: str
    kind: str
    aliases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExtractedFact:
    """A fact as the model wrote it. `sources` and `replaces` are numbers of what it was shown, from 1."""

    subject: str
    attribute: str
    value: str
    statement: str
    exclusive: bool
    valid_from: str | None
    valid_until: str | None
    confidence: float
    sources: tuple[int, ...]
    replaces: int | None
    link: Link | None


@dataclass(frozen=True, slots=True)
class ExtractedFacts:
    entities: tuple[ExtractedEntity, ...] = ()
    facts: tuple[ExtractedFact, ...] = ()


def read(text: str) -> ExtractedFacts:
    """Raises Unreadable."""
    begin, end = text.find("{"), text.rfind("}")  # some models put words or a fence around it
    if begin < 0 or end < begin:
        raise UnreadableAnswer("it contains no JSON object")
    try:
        found: Any = orjson.loads(text[begin : end + 1])
    except orjson.JSONDecodeError as error:
        raise UnreadableAnswer(f"it is not valid JSON ({error})") from error
    entities, facts = _entries(found, "entities"), _entries(found, "facts")
    return ExtractedFacts(
        tuple(filter(None, map(_entity, entities[:ENTITIES_MAX]))), tuple(filter(None, map(_fact, facts[:FACTS_MAX])))
    )


def _entries(found: Any, name: str) -> list[Mapping[str, Any]]:
    given = cast("Mapping[str, Any]", found).get(name)
    if not isinstance(given, list):
        raise UnreadableAnswer(f"'{name}' is not a list")
    entries = cast("list[Any]", given)
    if not all(isinstance(each, dict) for each in entries):
        raise UnreadableAnswer(f"'{name}' contains an item that is not an object")
    return entries


def _entity(given: Mapping[str, Any]) -> ExtractedEntity | None:
    name = _text(given.get("name"), NAME_CHARS_MAX)
    if not name:
        return None
    aliases = (_text(each, NAME_CHARS_MAX) for each in _sequence(given.get("aliases"))[:ALIASES_MAX])
    return ExtractedEntity(name, _text(given.get("kind"), NAME_CHARS_MAX), tuple(filter(None, aliases)))


def _fact(given: Mapping[str, Any]) -> ExtractedFact | None:
    subject, attribute = (_text(given.get(name), NAME_CHARS_MAX) for name in ("subject", "attribute"))
    value = _text(given.get("value"), VALUE_CHARS_MAX)
    if not (subject and attribute and value):
        return None
    link = given.get("link")
    return ExtractedFact(
        subject,
        attribute,
        value,
        _text(given.get("statement"), STATEMENT_CHARS_MAX) or f"{subject} {attribute} {value}",
        given.get("one_value") is not False,
        _text(given.get("valid_from"), NAME_CHARS_MAX) or None,
        _text(given.get("valid_until"), NAME_CHARS_MAX) or None,
        _share(given.get("confidence")),
        tuple(number for number in map(_number, _sequence(given.get("sources"))) if number is not None),
        _number(given.get("replaces")),
        Link(link) if link in tuple(Link) else None,
    )


def _text(value: Any, chars_max: int) -> str:
    """One line, without what cannot be stored; empty for what is no text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return ""
    clean = value.replace("\0", "").encode("utf-8", "ignore").decode()
    return " ".join(clean.split())[:chars_max]


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _sequence(value: Any) -> Sequence[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.5
    return min(1.0, max(0.0, float(value)))
