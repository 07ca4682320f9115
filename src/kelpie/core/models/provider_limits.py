"""Settings for the use of models: limits per provider and chains of models. Text in, values out.

Each entry is one short text, so that an environment variable can hold it. They are parsed when Kelpie starts, so that a
mistake is reported then and not in the middle of a conversation.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kelpie.core.errors import ConfigurationError

LIMITS_FORM = "write 'openai: calls=8 requests=500 tokens=200000 dollars=5'"


@dataclass(frozen=True, slots=True)
class ProviderLimits:
    """Limits on the use of one provider by all agents together; None is unlimited."""

    calls: int | None = None  # at the same time
    requests: int | None = None  # per minute
    tokens: int | None = None  # per minute
    dollars: float | None = None  # per day


def parse_limits(setting: str, entries: Iterable[str]) -> dict[str, ProviderLimits]:
    """Provider -> limits. Raises ConfigurationError."""
    found: dict[str, ProviderLimits] = {}
    for entry in entries:
        provider, colon, rest = entry.partition(":")
        if not (provider.strip() and colon and rest.strip()):
            raise ConfigurationError(setting, f"'{entry}' has no provider or no limit; {LIMITS_FORM}")
        values = dict(_limit(setting, piece) for piece in rest.split())
        found[provider.strip()] = ProviderLimits(
            calls=_whole(setting, "calls", values),
            requests=_whole(setting, "requests", values),
            tokens=_whole(setting, "tokens", values),
            dollars=values.get("dollars"),
        )
    return found


def check_handle(setting: str, handle: str) -> None:
    """Raises ConfigurationError for a text that cannot name a model."""
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


def _limit(setting: str, piece: str) -> tuple[str, float]:
    name, _, value = (part.strip() for part in piece.partition("="))
    if name not in ProviderLimits.__slots__:
        raise ConfigurationError(
            setting, f"'{name}' is not a limit; use {', '.join(ProviderLimits.__slots__)}: {LIMITS_FORM}"
        )
    number = number_from(value)
    if not number:
        raise ConfigurationError(setting, f"{name} must be a number above 0, not '{value}'")
    return name, number


def _whole(setting: str, name: str, values: dict[str, float]) -> int | None:
    value = values.get(name)
    if value is not None and not value.is_integer():
        raise ConfigurationError(setting, f"{name} must be a whole number, not {value:g}")
    return None if value is None else int(value)


def number_from(text: str) -> float | None:
    """A number of at least 0, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
