"""How clients ask for a model's settings, new ways and old.

Sending `model_settings` at all brings Letta's defaults for that provider with it; agents made without keep the
model's own. The longest reply is only taken over when it was really sent.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ProviderType = Literal[
    "openai",
    "anthropic",
    "google_ai",
    "google_vertex",
    "azure",
    "xai",
    "zai",
    "groq",
    "deepseek",
    "together",
    "bedrock",
    "baseten",
    "openrouter",
    "chatgpt_oauth",
    "sglang",
    "moonshot",
    "moonshot_coding",
]

_DEFAULTS: dict[str, dict[str, Any]] = {
    "openai": {"temperature": 0.7, "reasoning": {"reasoning_effort": "high"}, "strict": True},
    "anthropic": {"temperature": 1.0, "thinking": {"type": "enabled", "budget_tokens": 1024}, "strict": False},
}
_TEMPERATURE_DEFAULT = 0.7


class ModelSettings(BaseModel):
    """Settings of a provider; further fields are kept as they are."""

    model_config = ConfigDict(extra="allow")

    provider_type: ProviderType
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_output_tokens: Annotated[int, Field(gt=0, le=2**53)] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    strict: bool | None = None


def settings_asked(body: ModelSettings) -> dict[str, Any]:
    """What was asked for, with the defaults that asking brings along."""
    defaults = {"temperature": _TEMPERATURE_DEFAULT, "parallel_tool_calls": True} | _DEFAULTS.get(
        body.provider_type, {}
    )
    return defaults | body.model_dump(exclude_none=True)


class LlmConfig(BaseModel):
    """The old way to choose a model; only what chooses one is read."""

    model_config = ConfigDict(extra="ignore")

    model: str
    handle: str | None = None
    model_endpoint_type: str | None = None
    provider_name: str | None = None
    context_window: Annotated[int, Field(gt=0, le=2**53)] | None = None
    max_tokens: Annotated[int, Field(gt=0, le=2**53)] | None = None
    parallel_tool_calls: bool | None = None

    def asked(self) -> dict[str, Any]:
        handle = self.handle or f"{self.provider_name or self.model_endpoint_type or 'openai'}/{self.model}"
        fields = {
            "model": handle,
            "context_window_limit": self.context_window,
            "max_tokens": self.max_tokens,
            "parallel_tool_calls": self.parallel_tool_calls,
        }
        return {name: value for name, value in fields.items() if value is not None}


class EmbeddingConfig(BaseModel):
    """The old way to choose an embedding model."""

    model_config = ConfigDict(extra="ignore")

    embedding_model: str
    embedding_endpoint_type: str | None = None
    handle: str | None = None

    def asked(self) -> dict[str, Any]:
        return {"embedding": self.handle or f"{self.embedding_endpoint_type or 'openai'}/{self.embedding_model}"}
