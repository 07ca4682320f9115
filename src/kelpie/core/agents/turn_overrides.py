"""Overrides that one send sets for its own turn, instead of the settings of its agent or conversation. Nothing
persists.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.core.agents.agent import ModelChoice


@dataclass(frozen=True, slots=True)
class Skill:
    """Something that the client's environment can do, and where its description is."""

    name: str
    description: str
    location: str


@dataclass(frozen=True, slots=True)
class TurnOverrides:
    """Another model, another system prompt used verbatim, skills that are named in the prompt, instructions of the
    client that follow it, and the format of the answer."""

    model: ModelChoice | None = None
    system: str | None = None
    skills: tuple[Skill, ...] = ()
    instructions: str | None = None
    response_format: Mapping[str, Any] | None = None
