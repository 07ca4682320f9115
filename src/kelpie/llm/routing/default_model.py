"""Choice of the default model for new agents when the settings name none.

The order is fixed, so that the same settings give the same model: the providers in the order of `ALL_OFFERS`, then
those that the organization has added, oldest first; within one, the models below, else the first by name that calls
tools. An agent keeps the model it was made with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kelpie.core.errors import ModelError
from kelpie.llm.provider.interface import ModelInfo
from kelpie.llm.routing.model_listing import Listing
from kelpie.llm.routing.providers import ALL_OFFERS

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


async def default_model(listings: Mapping[str, Listing], own: Mapping[str, str] | None = None) -> DefaultModel:
    """The default model by the listings of the providers; `own` has the types of the organization's.

    Raises ModelError when the provider that would give it fails.
    """
    without: list[str] = []
    types = {offer.name: offer.name for offer in ALL_OFFERS} | dict(own or {})
    for name, kind in types.items():
        listing = listings.get(name)
        if listing is None:
            continue
        try:
            models = await listing.models()
        except ModelError as error:
            raise _no_default(error) from error
        if chosen := preferred(kind, models):
            return DefaultModel(chosen.handle)
        without.append(name)
    if not without:
        return DefaultModel(DEMO, NOTHING_SET_UP)
    return DefaultModel(DEMO, f"no model of {' or '.join(without)} can chat; `kelpie doctor` shows more")


def preferred(provider: str, models: Sequence[ModelInfo]) -> ModelInfo | None:
    """The model of a provider that new agents get; None when it has none."""
    ordered = sorted(models, key=lambda model: model.name)
    for name in _PREFERRED.get(provider, ()):
        if found := next((model for model in ordered if model.name.startswith(name)), None):
            return found
    return next((model for model in ordered if model.tools), ordered[0] if ordered else None)


def _no_default(error: ModelError) -> ModelError:
    """The failure of the provider that would give the default model, with the other way to make an agent."""
    other = "Or name a model: kelpie/demo works without a provider."
    hint = f"{error.hint} {other}" if error.hint else other
    return ModelError(error.kind, error.message, detail=error.detail, hint=hint, retry_after_s=error.retry_after_s)
