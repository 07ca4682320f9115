"""Models and embedding models as Letta's clients see them."""

from collections.abc import Mapping
from struct import iter_unpack
from typing import Any, Protocol

BATCH_SIZE = 32

# Provider types that the SDKs accept; any other provider is shown with the protocol of the first.
_KNOWN_TYPES = frozenset(
    {
        "openai", "anthropic", "google_ai", "google_vertex", "azure", "groq", "ollama", "vllm", "mistral", "together",
        "bedrock", "deepseek", "xai", "zai", "baseten", "openrouter", "chatgpt_oauth", "minimax", "moonshot",
    }
)  # fmt: skip

VECTOR_DIGITS = 8  # a 32-bit float has no more


class _Offer(Protocol):
    """Facts that a listed model gives of itself; the types of package `llm` stay out of the server."""

    @property
    def handle(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def provider_name(self) -> str: ...
    @property
    def provider_type(self) -> str: ...
    @property
    def endpoint(self) -> str: ...


class ModelFacts(_Offer, Protocol):
    @property
    def context_window(self) -> int: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def tools(self) -> bool: ...
    @property
    def vision(self) -> bool: ...
    @property
    def structured_output(self) -> bool: ...
    @property
    def reasoning(self) -> bool: ...
    @property
    def streaming(self) -> bool: ...
    @property
    def category(self) -> str: ...
    @property
    def temperature(self) -> float | None: ...


class EmbeddingFacts(_Offer, Protocol):
    @property
    def dimensions(self) -> int: ...


def endpoint_type(facts: _Offer | None, provider_name: str) -> str:
    """The protocol of a model's endpoint, in the words the SDKs know."""
    kind = facts.provider_type if facts else provider_name
    return kind if kind in _KNOWN_TYPES else "openai"


def _head(facts: _Offer, kind: str, model_type: str) -> dict[str, Any]:
    return {
        "handle": facts.handle,
        "name": facts.name,
        "display_name": facts.name,
        "provider_type": kind,
        "provider_name": facts.provider_name,
        "model_type": model_type,
    }


def model_shape(facts: ModelFacts) -> dict[str, Any]:
    kind = endpoint_type(facts, facts.provider_name)
    return {
        **_head(facts, kind, "llm"),
        "model": facts.name,
        "model_endpoint_type": kind,
        "model_endpoint": facts.endpoint,
        "provider_category": facts.category,
        "model_wrapper": None,
        "context_window": facts.context_window,
        "put_inner_thoughts_in_kwargs": False,
        "temperature": facts.temperature,
        "max_tokens": facts.max_tokens,
        "enable_reasoner": True,
        "reasoning_effort": None,
        "max_reasoning_tokens": 0,
        "effort": None,
        "frequency_penalty": None,
        "compatibility_type": None,
        "verbosity": None,
        "tier": None,
        "parallel_tool_calls": False,
        "response_format": None,
        "strict": False,
        "return_logprobs": False,
        "top_logprobs": None,
        "return_token_ids": False,
        "tool_call_parser": None,
        "max_context_window": facts.context_window,
        **abilities(facts),
    }


def abilities(facts: ModelFacts) -> dict[str, bool]:
    """The abilities of the model, as far as its provider reports them. Kelpie's own: Letta has no such field."""
    return {
        "tools": facts.tools,
        "vision": facts.vision,
        "structured_output": facts.structured_output,
        "reasoning": facts.reasoning,
        "streaming": facts.streaming,
    }


def embedding_config(handle: str | None, chunk_size: int, known: Mapping[str, EmbeddingFacts]) -> dict[str, Any] | None:
    """The embedding model of an agent or an archive."""
    if handle is None:
        return None
    facts = known.get(handle)
    provider, _, name = handle.partition("/")
    return {
        "embedding_endpoint_type": endpoint_type(facts, provider),
        "embedding_endpoint": facts.endpoint if facts else None,
        "embedding_model": facts.name if facts else name,
        "embedding_dim": facts.dimensions if facts else 0,
        "embedding_chunk_size": chunk_size,
        "handle": handle,
        "batch_size": BATCH_SIZE,
        "azure_endpoint": None,
        "azure_version": None,
        "azure_deployment": None,
    }


def embedding_shape(facts: EmbeddingFacts) -> dict[str, Any]:
    kind = endpoint_type(facts, facts.provider_name)
    return {
        **_head(facts, kind, "embedding"),
        "embedding_endpoint_type": kind,
        "embedding_endpoint": facts.endpoint,
        "embedding_model": facts.name,
        "embedding_dim": facts.dimensions,
        "embedding_chunk_size": 300,
        "batch_size": BATCH_SIZE,
        "azure_endpoint": None,
        "azure_version": None,
        "azure_deployment": None,
    }


def vector_numbers(vector: bytes) -> list[float]:
    """A vector, which is stored as 32-bit floats, for JSON."""
    return [round(value, VECTOR_DIGITS) for (value,) in iter_unpack("<f", vector)]
