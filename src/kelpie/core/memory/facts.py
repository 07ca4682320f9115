"""Facts that an agent has learnt from its conversations, each with the time in which it was true.

A fact says that an attribute of a subject has a value. Facts are never overwritten: one that no longer holds gets an
end and a link to its successor, so that both the present and the past can be answered.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kelpie.core.dates.date_mentions import Mention
from kelpie.core.ids import AgentId, FactId, MessageId
from kelpie.core.search_hits import Hit, SearchMode
from kelpie.core.time import Micros

EVERY_TURNS_MAX = 1000
FACTS_MAX = 20_000  # of one agent; then nothing more is extracted until some are deleted
ENTITIES_MAX = 5_000

# A sign before a number and marks that make a name (C++, C#) are part of it.
_BETWEEN = re.compile(r"(?<=\w)-|[_\s'\"’“”.,;:!?()]+")


@dataclass(frozen=True, slots=True)
class FactSettings:
    """Settings of fact extraction for one agent: on or off, the number of turns between runs, and the model."""

    enabled: bool = True
    every_turns: int = 1
    model: str | None = None  # None: the agent's own


class Link(StrEnum):
    """Relation of a fact to the one it replaced: the world changed, or the old fact was never true."""

    update = "update"
    contradiction = "contradiction"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact, true from `valid_from` up to but not including `valid_until`."""

    id: FactId
    agent_id: AgentId
    subject: str
    attribute: str
    value: str
    statement: str
    valid_from: Micros
    recorded_at: Micros
    seen_at: Micros
    valid_until: Micros | None = None
    exclusive: bool = True  # true if the attribute has one value at a time
    confidence: float = 1.0
    seen: int = 1  # number of times it was stated
    supersedes: FactId | None = None
    superseded_by: FactId | None = None
    link: Link | None = None  # its relation to the fact it supersedes
    sources: tuple[MessageId, ...] = ()

    @property
    def subject_key(self) -> str:
        return key(self.subject)

    @property
    def attribute_key(self) -> str:
        return key(self.attribute)

    @property
    def value_key(self) -> str:
        return key(self.value)

    def holds(self, at: Micros) -> bool:
        """Checks whether the fact is true at that time."""
        return self.valid_from <= at and (self.valid_until is None or at < self.valid_until)


@dataclass(frozen=True, slots=True)
class Entity:
    """A person or thing that facts are about, with its other names."""

    name: str
    kind: str
    first_seen_at: Micros
    seen_at: Micros
    aliases: tuple[str, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(map(key, (self.name, *self.aliases)))


@dataclass(frozen=True, slots=True)
class FactQuery:
    """Filter for the facts of an agent; `at` keeps those that are true at that time, `entity` accepts any of its
    names."""

    limit: int = 50
    offset: int = 0
    entity: str | None = None
    attribute: str | None = None
    at: Micros | None = None


@dataclass(frozen=True, slots=True)
class FactSearch:
    """Search among an agent's facts; `at` keeps only what is true at that time."""

    text: str
    limit: int = 10
    mode: SearchMode = "hybrid"
    at: Micros | None = None
    mentions: tuple[Mention, ...] = ()  # the dates in the text: facts of that time are better matches


@dataclass(frozen=True, slots=True)
class FoundFact:
    """A fact, whether it is true now, and its hit; None for a fact that is listed because it replaced one that was
    found."""

    fact: Fact
    current: bool
    hit: Hit | None = None


@dataclass(frozen=True, slots=True)
class FactState:
    """Progress of fact extraction for an agent. `version` grows with every change."""

    agent_id: AgentId
    version: int
    through: int = 0  # the last message that was looked at, by its number
    failures: int = 0  # in a row
    not_before: Micros = 0
    extractions: int = 0
    skipped: int = 0  # pieces that were given up
    last_at: Micros | None = None
    last_error: str | None = None


def key(words: str) -> str:
    """Words in the form in which they are compared: without case, letter width, and punctuation between or around
    words."""
    folded = unicodedata.normalize("NFKC", words).casefold()
    return " ".join(_BETWEEN.sub(" ", folded).split()) or folded.strip()


def settings_to_json(settings: FactSettings | None) -> dict[str, Any] | None:
    if settings is None:
        return None
    return {"enabled": settings.enabled, "every_turns": settings.every_turns, "model": settings.model}


def settings_from_json(data: Mapping[str, Any] | None) -> FactSettings | None:
    return None if data is None else FactSettings(data["enabled"], data["every_turns"], data["model"])
