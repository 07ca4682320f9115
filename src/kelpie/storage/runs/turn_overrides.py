"""Overrides of one send, as JSON beside its input, so that a resumed turn still has them."""

from collections.abc import Mapping
from typing import Any

from kelpie.core.agents.agent import ModelChoice
from kelpie.core.agents.turn_overrides import Skill, TurnOverrides
from kelpie.storage.agents.columns import model_to_json


def override_to_json(override: TurnOverrides) -> dict[str, Any]:
    return {
        "model": None if override.model is None else model_to_json(override.model),
        "system": override.system,
        "skills": [[skill.name, skill.description, skill.location] for skill in override.skills],
        "instructions": override.instructions,
        "response_format": None if override.response_format is None else dict(override.response_format),
    }


def override_from_json(data: Mapping[str, Any] | None) -> TurnOverrides | None:
    if data is None:
        return None
    model = data["model"]
    skills = tuple(Skill(*skill) for skill in data["skills"])
    choice = None if model is None else ModelChoice(**model)
    return TurnOverrides(choice, data["system"], skills, data.get("instructions"), data.get("response_format"))
