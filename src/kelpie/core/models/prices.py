"""Prices of models: dollars per million tokens as operators write them, and a call in millionths of a dollar.

A model whose price is not known costs an unknown amount, never nothing: such a call is counted as unpriced.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kelpie.core.conversations.messages import Usage
from kelpie.core.errors import ConfigurationError
from kelpie.core.models.provider_limits import number_from

PRICES_FORM = (
    "write 'openai/gpt-4o=2.50/10.00' or 'groq/*=0.10/0.20': dollars per million tokens, input/output, and if they "
    "differ from the input also '/cached input/cache write'"
)
_PARTS = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens. Cache reads and writes cost as much as input unless set."""

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def micros(self, usage: Usage) -> int:
        """Millionths of a dollar for these tokens; cached tokens are part of the prompt."""
        cached, written = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
        fresh = max(0, usage.prompt_tokens - cached - written)
        return round(
            fresh * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + written * (self.input if self.cache_write is None else self.cache_write)
            + usage.completion_tokens * self.output
        )


def charged(usage: Usage, price: Price | None) -> Usage:
    """The usage of one call with its cost; unpriced when the price or the tokens are not known."""
    known = price is not None and (usage.total_tokens > 0 or (price.input == 0 and price.output == 0))
    if price is None or not known:
        return replace(usage, cost_micros=0, unpriced_calls=1)
    return replace(usage, cost_micros=price.micros(usage), unpriced_calls=0)


def parse_prices(setting: str, entries: Iterable[str]) -> dict[str, Price]:
    """Handle, or `provider/*` for all other models of a provider -> price. Raises ConfigurationError."""
    found: dict[str, Price] = {}
    for entry in entries:
        handle, _, rest = entry.rpartition("=")
        parts = [number_from(part) for part in rest.split("/")]
        given = [part for part in parts if part is not None]
        if "/" not in handle or len(given) != len(parts) or len(parts) not in _PARTS:
            raise ConfigurationError(setting, f"'{entry}' is not a price; {PRICES_FORM}")
        found[handle.strip()] = Price(*given)
    return found


def price_of(prices: Mapping[str, Price], handle: str) -> Price | None:
    """The price of a model: its own, else that of all models of its provider, else None."""
    return prices.get(handle) or prices.get(f"{handle.partition('/')[0]}/*")
