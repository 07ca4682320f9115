"""Kinds of providers, and their construction from settings."""

from collections.abc import Callable, Mapping

from kelpie.core.errors import ConfigurationError
from kelpie.llm.anthropic.messages import Anthropic
from kelpie.llm.openai.azure import Azure
from kelpie.llm.openai.chat import OpenAIChat
from kelpie.llm.openai.responses import OpenAI
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import Provider
from kelpie.llm.provider.retry import RetryLimits
from kelpie.world.world import World

Maker = Callable[[World, Endpoint, RetryLimits | None], Provider]

KINDS: Mapping[str, Maker] = {
    "anthropic": Anthropic,
    "azure": Azure,
    "openai": OpenAI,
    "openai_compatible": OpenAIChat,
}


def make(kind: str, world: World, endpoint: Endpoint, limits: RetryLimits | None = None) -> Provider:
    """The provider of this kind at this endpoint. Raises ConfigurationError for a kind that does not exist."""
    maker = KINDS.get(kind)
    if maker is None:
        raise ConfigurationError(
            f"kind of the provider {endpoint.provider}", f"'{kind}' is unknown; use one of {', '.join(KINDS)}"
        )
    return maker(world, endpoint, limits)
