"""The circuit breaker of a server: after some failures in a row it opens, and the server is left alone for a while.

Then one call may try again: the breaker is half open. If that succeeds it closes, and if not it stays open for longer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

LONGEST = 10  # times the first pause


class BreakerState(StrEnum):
    closed = "closed"
    open = "open"
    half_open = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerReport:
    state: BreakerState
    failures: int  # in a row
    retry_after_s: float  # until the next try
    last_error: str | None


class Breaker:
    """`now_s` is a clock that only goes forward."""

    def __init__(self, failures_max: int, retry_s: float, now_s: Callable[[], float]) -> None:
        self._failures_max = failures_max
        self._retry_s = retry_s
        self._now_s = now_s
        self._failures = 0
        self._openings = 0  # in a row
        self._retry_at: float | None = None  # None: it is closed
        self._trying = False
        self._last_error: str | None = None

    def admit(self) -> bool:
        """Whether a call may be made now. One that may while the breaker is not closed is the try."""
        if self._retry_at is None:
            return True
        if self._trying or self._now_s() < self._retry_at:
            return False
        self._trying = True
        return True

    def succeeded(self) -> bool:
        """Notes a success; True if it closes the breaker."""
        closes = self._retry_at is not None
        self._failures = self._openings = 0
        self._retry_at, self._trying, self._last_error = None, False, None
        return closes

    def failed(self, error: str) -> bool:
        """Notes a failure; True if it opens the breaker."""
        self._failures += 1
        self._last_error = error
        if not self._trying and (self._retry_at is not None or self._failures < self._failures_max):
            return False
        pause_s = self._retry_s * min(2**self._openings, LONGEST)
        self._openings += 1
        self._retry_at, self._trying = self._now_s() + pause_s, False
        return True

    def undecided(self) -> None:
        """The try was given up, or said nothing about the server: another may be made."""
        self._trying = False

    def report(self) -> BreakerReport:
        left = 0.0 if self._retry_at is None else max(0.0, self._retry_at - self._now_s())
        state = BreakerState.closed if self._retry_at is None else BreakerState.open
        if state is BreakerState.open and (self._trying or not left):
            state = BreakerState.half_open
        return BreakerReport(state, self._failures, left, self._last_error)
