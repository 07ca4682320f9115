"""Wall time. Durations and time-outs use the event loop's own clock, so a jump here changes none of them."""

import time
from typing import Protocol

from kelpie.core.time import Micros


class Clock(Protocol):
    def now(self) -> Micros:
        """The wall clock, in microseconds since 1970 UTC. May jump."""
        ...

    def monotonic_ns(self) -> int:
        """For measuring; never jumps back."""
        ...


class SystemClock:
    def now(self) -> Micros:
        return time.time_ns() // 1000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()
