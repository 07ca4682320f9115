"""Prices as operators write them, and what a call costs."""

import pytest

from kelpie.core.conversations.messages import Usage
from kelpie.core.errors import ConfigurationError
from kelpie.core.models.prices import Price, charged, parse_prices, price_of


def test_prices():
    prices = parse_prices("X", ["openai/gpt-4o=2.50/10", "groq/*=0.1/0.2", "openai/a=b=1/2", "ollama/q:8b=0/0"])
    assert prices["openai/gpt-4o"] == Price(2.5, 10.0)
    assert price_of(prices, "openai/a=b") == Price(1, 2)
    assert price_of(prices, "groq/llama") == Price(0.1, 0.2)
    assert price_of(prices, "openai/other") is None
    assert price_of(prices, "ollama/q:8b") == Price(0, 0)
    more = parse_prices("X", ["a/b=3/15/0.3", "a/c=3/15/0.3/3.75"])
    assert more == {"a/b": Price(3, 15, 0.3), "a/c": Price(3, 15, 0.3, 3.75)}


@pytest.mark.parametrize(
    "entry",
    ["nonsense", "openai/x", "openai/x=1", "openai/x=1/", "openai/x=-1/2", "x=1/2", "openai/x=1/2/3/4/5", "a/b=1/2/x"],
)
def test_wrong_prices(entry: str):
    with pytest.raises(ConfigurationError, match="is not a price; write"):
        parse_prices("KELPIE_MODEL_PRICES", [entry])


def test_every_kind_of_token_has_its_price():
    used = Usage(1_000_000, 100_000, 1_100_000, cached_input_tokens=600_000, cache_write_tokens=100_000)
    assert Price(3, 15, 0.3, 3.75).micros(used) == 300_000 * 3 + 600_000 * 0.3 + 100_000 * 3.75 + 100_000 * 15
    assert Price(3, 15).micros(used) == 1_000_000 * 3 + 100_000 * 15  # untold, all input costs the same
    assert Price(3, 15).micros(Usage(10, 1, 11)) == 45


def test_what_is_not_known_is_never_nothing():
    used = Usage(10, 1, 11)
    assert charged(used, Price(3, 15)).cost_usd == 0.000045
    unknown = charged(used, None)
    assert (unknown.cost_usd, unknown.unpriced_calls) == (None, 1)
    assert charged(Usage(), Price(3, 15)).cost_usd is None  # a server that does not count
    assert charged(Usage(), Price(0, 0)).cost_usd == 0  # which does not matter where tokens are free
    both = charged(used, Price(3, 15)) + unknown
    assert (both.cost_micros, both.unpriced_calls, both.cost_usd) == (45, 1, None)
    assert Usage().cost_usd == 0
