"""What operators write about the use of models: bounds per provider, prices, and chains of models. Text in, values out.

Each entry is one short text, so that an environment variable can hold them. They are read when Kelpie starts, so that
a slip is told there and not in the middle of a conversation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from kelpie.core.errors import ConfigurationError

LIMITS_FORM = "write 'openai: calls=8 requests=500 tokens=200000 dollars=5'"
PRICES_FORM = "write 'openai/gpt-4o=2.50/10.00' or 'groq/*=0.10/0.20': dollars per million tokens, input/output"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much all agents together may ask of one provider; None is as much as they like."""

    calls: int | None = None  # at the same time
    requests: int | None = None  # per minute
    tokens: int | None = None  # per minute
    dollars: float | None = None  # per day


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens."""

    input: float
    output: float


def parse_limits(setting: str, entries: Iterable[str]) -> dict[str, Bounds]:
    """Provider -> bounds. Raises ConfigurationError."""
    found: dict[str, Bounds] = {}
    for entry in entries:
        provider, colon, rest = entry.partition(":")
        if not (provider.strip() and colon and rest.strip()):
            raise ConfigurationError(setting, f"'{entry}' names no provider or no limit; {LIMITS_FORM}")
        values = dict(_limit(setting, piece) for piece in rest.split())
        found[provider.strip()] = Bounds(
            calls=_whole(setting, "calls", values),
            requests=_whole(setting, "requests", values),
            tokens=_whole(setting, "tokens", values),
            dollars=values.get("dollars"),
        )
    return found


def parse_prices(setting: str, entries: Iterable[str]) -> dict[str, Price]:
    """Handle, or `provider/*` for all the rest of a provider -> price. Raises ConfigurationError."""
    found: dict[str, Price] = {}
    for entry in entries:
        handle, _, rest = entry.rpartition("=")
        given, _, returned = rest.partition("/")
        prices = _number(given), _number(returned)
        if "/" not in handle or None in prices:
            raise ConfigurationError(setting, f"'{entry}' is not a price; {PRICES_FORM}")
        found[handle.strip()] = Price(*cast("tuple[float, float]", prices))
    return found


def check_handle(setting: str, handle: str) -> None:
    """Raises ConfigurationError for what cannot name a model."""
    parse_handles(setting, (handle,))


def parse_handles(setting: str, entries: Iterable[str]) -> tuple[str, ...]:
    """Handles in order. Raises ConfigurationError."""
    handles = tuple(entry.strip() for entry in entries)
    for handle in handles:
        provider, slash, model = handle.partition("/")
        if not (provider and slash and model):
            raise ConfigurationError(
                setting, f"'{handle}' is not a handle of the form provider/model, such as ollama/qwen3:8b"
            )
    return handles


def price_of(prices: Mapping[str, Price], handle: str) -> Price | None:
    """What a model costs: its own price, else that of all models of its provider, else None."""
    return prices.get(handle) or prices.get(f"{handle.partition('/')[0]}/*")


def _limit(setting: str, piece: str) -> tuple[str, float]:
    name, _, value = (part.strip() for part in piece.partition("="))
    if name not in Bounds.__slots__:
        raise ConfigurationError(setting, f"'{name}' is no limit; use {', '.join(Bounds.__slots__)}: {LIMITS_FORM}")
    number = _number(value)
    if not number:
        raise ConfigurationError(setting, f"{name} must be a number above 0, not '{value}'")
    return name, number


def _whole(setting: str, name: str, values: dict[str, float]) -> int | None:
    value = values.get(name)
    if value is not None and not value.is_integer():
        raise ConfigurationError(setting, f"{name} must be a whole number, not {value:g}")
    return None if value is None else int(value)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
