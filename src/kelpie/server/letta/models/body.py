"""Model settings in requests, in the new form and the old ones.

Sending `model_settings` at all brings Letta's defaults for that provider with it; agents made without keep the model's
own. The reply limit is only taken over when it was really sent.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from kelpie.core.json_limits import SCHEMA
from kelpie.core.models.response_formats import check_format
from kelpie.server.http.limits.free_json import within

BUDGET_TOKENS_MIN = 1024  # what Anthropic accepts at least

# The provider types of the SDKs, even if there is no such provider here: settings outlive the model they were made for.
# Then Kelpie's own, which the SDKs do not know.
ProviderType = Literal[
    "anthropic", "azure", "baseten", "bedrock", "cerebras", "chatgpt_oauth", "deepseek", "fireworks", "google_ai",
    "google_vertex", "groq", "hugging-face", "letta", "lmstudio_openai", "minimax", "mistral", "moonshot",
    "moonshot_coding", "ollama", "openai", "openrouter", "sglang", "together", "vllm", "xai", "zai", "zai_coding",
    "kelpie", "llamacpp", "lmstudio", "localai",
]  # fmt: skip

_DEFAULTS: dict[str, dict[str, Any]] = {
    "openai": {"temperature": 0.7, "reasoning": {"reasoning_effort": "high"}, "strict": True},
    "anthropic": {"temperature": 1.0, "thinking": {"type": "enabled", "budget_tokens": 1024}, "strict": False},
}
_TEMPERATURE_DEFAULT = 0.7
# Local servers have a temperature of their own, such as that of a Modelfile.
_LOCAL = frozenset({"ollama", "lmstudio", "lmstudio_openai", "vllm", "sglang", "llamacpp", "localai"})


class Thinking(BaseModel):
    """Thinking of an Anthropic model before it answers."""

    model_config = ConfigDict(extra="allow")

    type: Literal["enabled", "disabled", "adaptive"] = "enabled"
    budget_tokens: Annotated[int, Field(ge=0, le=2**53)] = BUDGET_TOKENS_MIN

    @model_validator(mode="after")
    def _budget_is_enough(self) -> Self:
        if self.type == "enabled" and self.budget_tokens < BUDGET_TOKENS_MIN:
            raise ValueError(f"budget_tokens: use at least {BUDGET_TOKENS_MIN}, or the type 'disabled'")
        return self


def _checked(value: dict[str, Any]) -> dict[str, Any]:
    check_format(value)
    return value


ResponseFormat = Annotated[dict[str, Any], AfterValidator(within(SCHEMA)), AfterValidator(_checked)]
"""`{"type": "text" | "json_object"}`, or `{"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}`."""


class ModelSettings(BaseModel):
    """Settings of a provider; further fields are kept as they are."""

    model_config = ConfigDict(extra="allow")

    provider_type: ProviderType
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_output_tokens: Annotated[int, Field(gt=0, le=2**53)] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: dict[str, Any] | None = None
    thinking: Thinking | None = None
    response_format: ResponseFormat | None = None
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_small(cls, given: Any) -> Any:
        return within(SCHEMA)(given)  # it may contain a response format, which contains a schema


def requested_settings(body: ModelSettings, handle: str | None = None) -> dict[str, Any]:
    """The requested settings, with the defaults that they bring along. `handle` is the model in the same request."""
    defaults = {"temperature": _TEMPERATURE_DEFAULT, "parallel_tool_calls": True} | _DEFAULTS.get(
        body.provider_type, {}
    )
    if _LOCAL & {body.provider_type, (handle or "").partition("/")[0]}:
        del defaults["temperature"]
    return defaults | body.model_dump(exclude_none=True)


class LlmConfig(BaseModel):
    """The old way to choose a model; only the fields that choose one, and those about reasoning, are read."""

    model_config = ConfigDict(extra="ignore")

    model: str
    handle: str | None = None
    model_endpoint_type: str | None = None
    provider_name: str | None = None
    context_window: Annotated[int, Field(gt=0, le=2**53)] | None = None
    max_tokens: Annotated[int, Field(gt=0, le=2**53)] | None = None
    parallel_tool_calls: bool | None = None
    put_inner_thoughts_in_kwargs: bool | None = None
    enable_reasoner: bool | None = None
    max_reasoning_tokens: Annotated[int, Field(ge=0, le=2**53)] | None = None

    def reasoning_changes(self) -> dict[str, Any]:
        """The changes to the reasoning of an agent; a new agent gets its type's own."""
        changes: dict[str, Any] = {"inner_thoughts": self.put_inner_thoughts_in_kwargs}
        if self.enable_reasoner is False and not self.put_inner_thoughts_in_kwargs:
            changes["reasoning"] = False
        elif self.max_reasoning_tokens:
            changes["max_reasoning_tokens"] = self.max_reasoning_tokens
        return changes

    def requested(self) -> dict[str, Any]:
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
    embedding_chunk_size: Annotated[int, Field(gt=0, le=2**31 - 1)] | None = None

    def requested(self) -> dict[str, Any]:
        return {"embedding": self.handle or f"{self.embedding_endpoint_type or 'openai'}/{self.embedding_model}"}
