"""Choice of the default model for new agents when the settings name none.

The order is fixed, so that the same settings give the same model: the providers in the order of `ALL_OFFERS`; within
one, the models below, else the first by name that calls tools. An agent keeps the model it was made with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kelpie.llm.provider.interface import ModelInfo

DEMO = "kelpie/demo"
NOTHING_SET_UP = (
    "no provider is set up. Set OPENAI_API_KEY, ANTHROPIC_API_KEY or another key, or start Ollama or another model "
    "server on this machine"
)
# By provider, best first: small, and known to call tools well. A dated snapshot counts as its model.
_PREFERRED: Mapping[str, Sequence[str]] = {
    "openai": ("gpt-5-mini", "gpt-4.1-mini", "gpt-4o-mini"),
    "anthropic": ("claude-haiku-4-5", "claude-sonnet-4-5"),
    "azure": ("gpt-5-mini", "gpt-4.1-mini", "gpt-4o-mini"),
    "groq": ("llama-3.3-70b-versatile",),
    "together": ("meta-llama/Llama-3.3-70B-Instruct-Turbo",),
    "deepseek": ("deepseek-chat",),
    "xai": ("grok-4", "grok-3-mini"),
    "openrouter": ("openai/gpt-5-mini", "openai/gpt-4.1-mini", "openai/gpt-4o-mini"),
}


@dataclass(frozen=True, slots=True)
class DefaultModel:
    """The default model, and why it is the demo when it is."""

    handle: str
    reason: str | None = None


def preferred(provider: str, models: Sequence[ModelInfo]) -> ModelInfo | None:
    """The model of a provider that new agents get; None when it has none."""
    ordered = sorted(models, key=lambda model: model.name)
    for name in _PREFERRED.get(provider, ()):
        if found := next((model for model in ordered if model.name.startswith(name)), None):
            return found
    return next((model for model in ordered if model.tools), ordered[0] if ordered else None)
