"""Which kinds of providers there are, and how one is made from its settings."""

from collections.abc import Callable, Mapping

from kelpie.core.errors import ConfigurationError
from kelpie.llm.anthropic import Anthropic
from kelpie.llm.azure import Azure
from kelpie.llm.faults import Endpoint
from kelpie.llm.openai_chat import OpenAIChat
from kelpie.llm.openai_responses import OpenAI
from kelpie.llm.port import Provider
from kelpie.llm.retry import Limits
from kelpie.world.world import World

Maker = Callable[[World, Endpoint, Limits | None], Provider]

KINDS: Mapping[str, Maker] = {
    "anthropic": Anthropic,
    "azure": Azure,
    "openai": OpenAI,
    "openai_compatible": OpenAIChat,
}


def make(kind: str, world: World, endpoint: Endpoint, limits: Limits | None = None) -> Provider:
    """The provider of this kind at this endpoint. Raises ConfigurationError for a kind that does not exist."""
    maker = KINDS.get(kind)
    if maker is None:
        raise ConfigurationError(f"kind of the provider {endpoint.provider}", f"'{kind}' is none of {', '.join(KINDS)}")
    return maker(world, endpoint, limits)
