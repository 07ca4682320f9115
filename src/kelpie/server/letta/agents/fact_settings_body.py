"""Settings of fact extraction in requests and responses. They are Kelpie's own: Letta has no such field."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.memory.facts import EVERY_TURNS_MAX, FactSettings, settings_to_json


class FactSettingsBody(BaseModel):
    """Extraction of facts from the agent's conversations: on or off, how often, and by which model."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = True
    every_turns: Annotated[int, Field(ge=1, le=EVERY_TURNS_MAX)] = Field(
        1, description="Extract facts after this many turns."
    )
    model: str | None = Field(None, description="The handle of the model to ask; null for the agent's own model.")

    def settings(self) -> FactSettings:
        return FactSettings(self.enabled, self.every_turns, self.model)


def fact_settings_shape(settings: FactSettings | None) -> dict[str, Any] | None:
    return settings_to_json(settings)
