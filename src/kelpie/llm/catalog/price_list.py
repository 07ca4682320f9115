"""Built-in prices: the list prices of OpenAI and Anthropic as of 2026-11-15.

Facts only, in dollars per million tokens, for calls at the standard tier. A name matches when it is the name of the
model or a dated snapshot of it; a similar name has no price here, since a wrong price is worse than none. Local models
cost no money. An operator's own prices take precedence.
"""

import re
from collections.abc import Collection, Mapping

from kelpie.core.models.prices import Price, price_of

FREE = Price(0.0, 0.0)
_FREE_PROVIDERS = frozenset({"kelpie", "ollama", "lmstudio", "vllm", "llamacpp", "localai"})


def _openai(given: float, returned: float, cached: float | None = None) -> Price:
    return Price(given, returned, cached)


def _claude(given: float, returned: float, cached: float | None = None) -> Price:
    """A price of Anthropic: cache reads cost a tenth unless given, and cache writes a quarter more."""
    return Price(given, returned, given / 10 if cached is None else cached, given * 1.25)


_LISTED: Mapping[str, Mapping[str, Price]] = {
    "openai": {
        "gpt-3.5-turbo": _openai(0.50, 1.50),
        "gpt-4": _openai(30.0, 60.0),
        "gpt-4-turbo": _openai(10.0, 30.0),
        "gpt-4o": _openai(2.50, 10.0, 1.25),
        "gpt-4o-2024-05-13": _openai(5.0, 15.0),
        "gpt-4o-mini": _openai(0.15, 0.60, 0.075),
        "gpt-4.1": _openai(2.0, 8.0, 0.50),
        "gpt-4.1-mini": _openai(0.40, 1.60, 0.10),
        "gpt-4.1-nano": _openai(0.10, 0.40, 0.025),
        "gpt-5": _openai(1.25, 10.0, 0.125),
        "gpt-5-mini": _openai(0.25, 2.0, 0.025),
        "gpt-5-nano": _openai(0.05, 0.40, 0.005),
        "gpt-5.1": _openai(1.25, 10.0, 0.125),
        "gpt-5.2": _openai(1.75, 14.0, 0.175),
        "gpt-5.4": _openai(2.50, 15.0, 0.25),
        "gpt-5.4-mini": _openai(0.75, 4.50, 0.075),
        "gpt-5.4-nano": _openai(0.20, 1.25, 0.02),
        "gpt-5.5": _openai(5.0, 30.0, 0.50),
        "o1": _openai(15.0, 60.0, 7.50),
        "o3": _openai(2.0, 8.0, 0.50),
        "o3-mini": _openai(1.10, 4.40, 0.55),
        "o4-mini": _openai(1.10, 4.40, 0.275),
    },
    "anthropic": {
        "claude-3-haiku": _claude(0.25, 1.25),
        "claude-3-5-haiku": _claude(0.80, 4.0),
        "claude-haiku-4-5": _claude(1.0, 5.0),
        "claude-3-5-sonnet": _claude(3.0, 15.0),
        "claude-3-7-sonnet": _claude(3.0, 15.0),
        "claude-sonnet-4": _claude(3.0, 15.0),
        "claude-sonnet-4-5": _claude(3.0, 15.0),
        "claude-sonnet-4-6": _claude(3.0, 15.0),
        "claude-sonnet-5": _claude(2.0, 10.0),
        "claude-sonnet-5-5": _claude(2.0, 10.0, 0.10),
        "claude-3-opus": _claude(15.0, 75.0),
        "claude-opus-4": _claude(15.0, 75.0),
        "claude-opus-4-1": _claude(15.0, 75.0),
        "claude-opus-4-5": _claude(5.0, 25.0),
        "claude-opus-4-6": _claude(5.0, 25.0),
        "claude-opus-4-7": _claude(5.0, 25.0),
        "claude-opus-4-8": _claude(5.0, 25.0),
        "claude-opus-5": _claude(5.0, 25.0),
        "claude-opus-5-5": _claude(4.0, 20.0, 0.20),
        "claude-fable-5": _claude(10.0, 50.0),
        "claude-fable-5-1": _claude(10.0, 50.0, 0.25),
        "claude-mythos-5": _claude(10.0, 50.0),
        "claude-mythos-5-1": _claude(10.0, 50.0, 0.25),
    },
}
_SNAPSHOT = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|0|latest)$")


class Prices:
    """Prices of all models, as far as known: the operator's own before those listed here.

    `listed` are the providers whose list prices hold. A compatible server at another address has its own prices.
    """

    def __init__(
        self,
        own: Mapping[str, Price],
        listed: Collection[str] = tuple(_LISTED),
        lists: Mapping[str, str] | None = None,
    ) -> None:
        """`lists` names the provider whose prices hold for one that an organization added; "" if none is known."""
        self._own = own
        self._listed = frozenset(listed) & _LISTED.keys()
        self._lists = {} if lists is None else lists  # which changes with what is stored

    def with_lists(self, lists: Mapping[str, str]) -> "Prices":
        """The same prices, and those of providers that an organization added."""
        return Prices(self._own, self._listed, lists)

    def of(self, handle: str) -> Price | None:
        """The price of a model; None when it is not known."""
        told = price_of(self._own, handle)
        if told is not None:
            return told
        provider, _, name = handle.partition("/")
        added = self._lists.get(provider)
        provider = provider if added is None else added
        if provider in _FREE_PROVIDERS:
            return FREE
        listed = _LISTED[provider] if added or provider in self._listed else {}
        return listed.get(name) or listed.get(_SNAPSHOT.sub("", name))

    def knows(self, provider: str) -> bool:
        """Checks whether the price of any model of this provider is known."""
        own = any(handle.startswith(f"{provider}/") for handle in self._own)
        added = bool(self._lists.get(provider))
        return own or added or provider in _FREE_PROVIDERS or provider in self._listed
