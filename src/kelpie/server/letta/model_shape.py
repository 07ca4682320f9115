"""Models and embedding models as Letta's clients see them."""

from typing import Any, Protocol

# What the SDKs accept as the kind of a provider; any other speaks the protocol of the first.
_KNOWN_TYPES = frozenset(
    {
        "openai", "anthropic", "google_ai", "google_vertex", "azure", "groq", "ollama", "vllm", "mistral", "together",
        "bedrock", "deepseek", "xai", "zai", "baseten", "openrouter", "chatgpt_oauth", "minimax", "moonshot",
    }
)  # fmt: skip


class _Offer(Protocol):
    """What a listed model tells of itself; the provider's own types stay on their side of the house."""

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


class EmbeddingFacts(_Offer, Protocol):
    @property
    def dimensions(self) -> int: ...


def endpoint_type(facts: _Offer | None, provider_name: str) -> str:
    """The protocol a model is spoken to with, in the words the SDKs know."""
    kind = facts.provider_type if facts else provider_name
    return kind if kind in _KNOWN_TYPES else "openai"


def model_shape(facts: ModelFacts) -> dict[str, Any]:
    kind = endpoint_type(facts, facts.provider_name)
    return {
        "handle": facts.handle,
        "name": facts.name,
        "display_name": facts.name,
        "provider_type": kind,
        "provider_name": facts.provider_name,
        "model_type": "llm",
        "model": facts.name,
        "model_endpoint_type": kind,
        "model_endpoint": facts.endpoint,
        "provider_category": "base",
        "model_wrapper": None,
        "context_window": facts.context_window,
        "put_inner_thoughts_in_kwargs": False,
        "temperature": 1.0,
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
        # Ours: what the model can do, as far as its provider or its maker tells.
        "tools": facts.tools,
        "vision": facts.vision,
        "structured_output": facts.structured_output,
        "reasoning": facts.reasoning,
        "streaming": facts.streaming,
    }


def embedding_shape(facts: EmbeddingFacts) -> dict[str, Any]:
    kind = endpoint_type(facts, facts.provider_name)
    return {
        "handle": facts.handle,
        "name": facts.name,
        "display_name": facts.name,
        "provider_type": kind,
        "provider_name": facts.provider_name,
        "model_type": "embedding",
        "embedding_endpoint_type": kind,
        "embedding_endpoint": facts.endpoint,
        "embedding_model": facts.name,
        "embedding_dim": facts.dimensions,
        "embedding_chunk_size": 300,
        "batch_size": 32,
        "azure_endpoint": None,
        "azure_version": None,
        "azure_deployment": None,
    }
