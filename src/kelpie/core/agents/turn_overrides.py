"""What one send sets for its own turn, in the place of what its agent or conversation says. Nothing of it stays."""

from dataclasses import dataclass

from kelpie.core.agents.agent import ModelChoice


@dataclass(frozen=True, slots=True)
class Skill:
    """Something that the client's surroundings know how to do, and where its description is."""

    name: str
    description: str
    location: str


@dataclass(frozen=True, slots=True)
class TurnOverrides:
    """Another model, another system prompt as it stands, and skills that are named in the prompt."""

    model: ModelChoice | None = None
    system: str | None = None
    skills: tuple[Skill, ...] = ()
