"""The prices that Kelpie knows by itself."""

import pytest

from kelpie.core.conversations.messages import Usage
from kelpie.core.models.prices import Price, charged
from kelpie.llm.catalog.price_list import FREE, Prices

KNOWN = Prices({})


@pytest.mark.parametrize(
    ("handle", "price"),
    [
        ("openai/gpt-4.1-mini", Price(0.4, 1.6, 0.1)),
        ("openai/gpt-4.1-mini-2025-04-14", Price(0.4, 1.6, 0.1)),
        ("openai/gpt-4o-2024-05-13", Price(5.0, 15.0)),
        ("anthropic/claude-sonnet-4-5-20250929", Price(3.0, 15.0, 0.3, 3.75)),
        ("anthropic/claude-3-5-haiku-latest", Price(0.8, 4.0, 0.08, 1.0)),
        ("anthropic/claude-opus-4-1", Price(15.0, 75.0, 1.5, 18.75)),
        ("ollama/qwen3:8b", FREE),
        ("kelpie/demo", FREE),
    ],
)
def test_listed_prices(handle: str, price: Price):
    found = KNOWN.of(handle)
    assert found is not None
    assert (found.input, found.output, found.cached) == pytest.approx((price.input, price.output, price.cached))
    assert found.cache_write == (None if price.cache_write is None else pytest.approx(price.cache_write))


@pytest.mark.parametrize(
    "handle", ["openai/gpt-5-pro", "openai/gpt-5.6", "openai/scripted", "groq/llama", "azure/gpt-4o", "x"]
)
def test_what_is_only_similar_has_no_price(handle: str):
    assert KNOWN.of(handle) is None
    assert charged(Usage(1, 1, 2), KNOWN.of(handle)).cost_usd is None


def test_the_operators_prices_go_first():
    own = Prices({"openai/*": Price(1, 2), "ollama/big": Price(3, 4), "groq/x": Price(5, 6)})
    assert own.of("openai/gpt-4o") == Price(1, 2)
    assert own.of("ollama/big") == Price(3, 4)
    assert own.of("ollama/small") == FREE
    assert own.of("groq/y") is None
    assert [own.knows(name) for name in ("openai", "groq", "xai", "ollama")] == [True, True, False, True]
