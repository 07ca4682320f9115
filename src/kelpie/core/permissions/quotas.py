"""Quotas: limits on an agent's use of the machine and its models in each hour (of UTC), and the usage. Pure.

Usage is added up from the records of calls and steps, so nothing is stored twice.
"""

from dataclasses import dataclass, replace
from typing import Any

from kelpie.core.permissions.budgets import Budget, Period
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.core.tools.confinement import MEGABYTE, Confinement


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits for one agent; None is unlimited. The first three are for each hour, the others for one call in a
    sandbox."""

    tool_calls: int | None = None
    tokens: int | None = None
    cpu_us: int | None = None
    memory_bytes: int | None = None
    wall_s: float | None = None
    cpu_share: float | None = None  # of one core
    processes: int | None = None
    output_bytes: int | None = None
    scratch_bytes: int | None = None
    return_chars: int | None = None  # of a result, as the model sees it

    @property
    def open(self) -> bool:
        """True if nothing must be counted: there are limits for one call at most."""
        return self.tool_calls is None and self.tokens is None and self.cpu_us is None

    @property
    def counts_calls(self) -> bool:
        """True if the usage of this hour's calls must be known."""
        return self.tool_calls is not None or self.cpu_us is not None

    @property
    def budget(self) -> Budget | None:
        """The token limit as a budget for the budget check."""
        return None if self.tokens is None else Budget(tokens=self.tokens, period=Period.hour)

    def within(self, other: "Quota") -> "Quota":
        """The tighter of both, field by field."""
        return Quota(**{name: _least(getattr(self, name), getattr(other, name)) for name in Quota.__slots__})

    def confined(self, confinement: Confinement) -> Confinement:
        """The confinement of a job, tightened by this quota."""
        tighter = {
            name: most
            for name in _OF_ONE_CALL
            if (most := getattr(self, name)) is not None and most < getattr(confinement, name)
        }
        return replace(confinement, **tighter) if tighter else confinement

    def returned(self, chars: int) -> int:
        """The characters of a result that a model sees, of those that its tool may return."""
        return chars if self.return_chars is None else min(chars, self.return_chars)


UNBOUNDED = Quota()
_OF_ONE_CALL = (
    "memory_bytes",
    "wall_s",
    "cpu_share",
    "processes",
    "output_bytes",
    "scratch_bytes",
)  # as a confinement names them
_HOURLY = Budget(period=Period.hour)


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """Usage of calls; refused calls used nothing."""

    tool_calls: int = 0
    cpu_us: int = 0
    memory_peak_bytes: int = 0  # of the one that held most

    def __add__(self, other: "QuotaUse") -> "QuotaUse":
        peak = max(self.memory_peak_bytes, other.memory_peak_bytes)
        return QuotaUse(self.tool_calls + other.tool_calls, self.cpu_us + other.cpu_us, peak)


NOTHING_USED = QuotaUse()


def hour_of(now: Micros) -> Micros:
    """Start of the current hour."""
    return _HOURLY.begins(now)


def hour_after(now: Micros) -> Micros:
    """End of the current hour, when the quotas are available again."""
    return hour_of(now) + 3600 * MICROS_PER_SECOND


def cpu_seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / MICROS_PER_SECOND


def megabytes(size: int | None) -> int | None:
    return None if size is None else size // MEGABYTE


def _least(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else min(one, other)
