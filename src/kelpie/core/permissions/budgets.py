"""Budgets of agents: limits on money, tokens or both, over an agent's life or in each hour, day or month (of UTC).

Spending is added up from the stored steps, so nothing is stored twice and nothing can drift apart.
"""

from dataclasses import dataclass
from enum import StrEnum

from kelpie.core.time import MICROS_PER_SECOND, Micros, as_datetime, from_datetime

MICROS_PER_DOLLAR = 1_000_000
BUDGET_KEY = "kelpie_budget"  # in the metadata of a run that found its agent's budget used up
_HOUR = 3600 * MICROS_PER_SECOND
_DAY = 24 * _HOUR
_LONGEST_MONTH = 31 * _DAY


class Period(StrEnum):
    total = "total"
    hour = "hour"
    day = "day"
    month = "month"


@dataclass(frozen=True, slots=True)
class Budget:
    """Limit on spending in a period; at least one of money and tokens is limited."""

    micros: int | None = None  # millionths of a dollar
    tokens: int | None = None
    period: Period = Period.total

    def begins(self, now: Micros) -> Micros:
        """Start of the current period."""
        match self.period:
            case Period.total:
                return 0
            case Period.hour:
                return now - now % _HOUR
            case Period.day:
                return now - now % _DAY
            case Period.month:
                return from_datetime(as_datetime(now).replace(day=1, hour=0, minute=0, second=0, microsecond=0))

    def ends(self, now: Micros) -> Micros | None:
        """End of the current period; None when it never ends."""
        begun = self.begins(now)
        match self.period:
            case Period.total:
                return None
            case Period.hour:
                return begun + _HOUR
            case Period.day:
                return begun + _DAY
            case Period.month:
                return self.begins(begun + _LONGEST_MONTH)


@dataclass(frozen=True, slots=True)
class SpentAmount:
    """Usage of steps; the money is that of the calls whose price was known."""

    micros: int = 0
    tokens: int = 0
    calls: int = 0
    unpriced_calls: int = 0

    def __add__(self, other: "SpentAmount") -> "SpentAmount":
        return SpentAmount(
            self.micros + other.micros,
            self.tokens + other.tokens,
            self.calls + other.calls,
            self.unpriced_calls + other.unpriced_calls,
        )

    def exceeds(self, budget: Budget) -> bool:
        """True if nothing is left to spend."""
        money = budget.micros is not None and self.micros >= budget.micros
        return money or (budget.tokens is not None and self.tokens >= budget.tokens)
