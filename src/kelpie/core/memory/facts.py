"""What an agent has learnt from its conversations: facts about things, each with the time in which it was true.

A fact says that an attribute of a subject has a value. Facts are never overwritten: one that no longer holds gets an
end and a link to what came in its place, so that both what is true now and what was true then can be answered.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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
    """Whether facts are extracted from an agent's conversations, after how many turns, and by which model."""

    enabled: bool = True
    every_turns: int = 1
    model: str | None = None  # None: the agent's own


class Link(StrEnum):
    """How a fact stands to the one it took the place of: things changed, or it was never so."""

    update = "update"
    contradiction = "contradiction"


@dataclass(frozen=True, slots=True)
class Fact:
    """It is true from `valid_from` on, up to but not at `valid_until`."""

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
    exclusive: bool = True  # whether the attribute has one value at a time
    confidence: float = 1.0
    seen: int = 1  # how often it was said
    supersedes: FactId | None = None
    superseded_by: FactId | None = None
    link: Link | None = None  # how it stands to what it supersedes
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
        """Whether it is true at that time."""
        return self.valid_from <= at and (self.valid_until is None or at < self.valid_until)


@dataclass(frozen=True, slots=True)
class Entity:
    """Somebody or something that facts are about, with the other names it goes by."""

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
    """Which facts of an agent to list; `at` those that are true at that time, `entity` by whatever name."""

    limit: int = 50
    offset: int = 0
    entity: str | None = None
    attribute: str | None = None
    at: Micros | None = None


@dataclass(frozen=True, slots=True)
class FactSearch:
    """What to look for among an agent's facts; `at` only what is true at that time."""

    text: str
    limit: int = 10
    mode: SearchMode = "hybrid"
    at: Micros | None = None


@dataclass(frozen=True, slots=True)
class FoundFact:
    """A fact, whether it is true now, and how it was found; None when it is shown because it replaced one that was."""

    fact: Fact
    current: bool
    hit: Hit | None = None


@dataclass(frozen=True, slots=True)
class FactState:
    """How far the extraction from an agent's conversations has come. `version` moves with every change of it."""

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
    """Words as they are compared: without case, the width of letters, and what may stand between or around words."""
    folded = unicodedata.normalize("NFKC", words).casefold()
    return " ".join(_BETWEEN.sub(" ", folded).split()) or folded.strip()


def settings_to_json(settings: FactSettings | None) -> dict[str, Any] | None:
    if settings is None:
        return None
    return {"enabled": settings.enabled, "every_turns": settings.every_turns, "model": settings.model}


def settings_from_json(data: Mapping[str, Any] | None) -> FactSettings | None:
    return None if data is None else FactSettings(data["enabled"], data["every_turns"], data["model"])
