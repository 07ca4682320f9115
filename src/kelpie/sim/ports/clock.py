"""The wall clock of a simulated node: virtual time, plus its errors."""

from collections.abc import Callable

from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.sim.faults import Fault, Faults
from kelpie.sim.loop.loop import SimLoop

START: Micros = 1_767_225_600 * MICROS_PER_SECOND  # 2026-01-01 UTC


class SimClock:
    """`Clock` on virtual time. Skew is there from boot on; a jump comes in between and stays.

    `ahead_s` is the time that has passed for all clocks while nothing ran.
    """

    def __init__(self, loop: SimLoop, faults: Faults, ahead_s: Callable[[], float] = lambda: 0.0) -> None:
        self._loop = loop
        self._faults = faults
        self._ahead_s = ahead_s
        self._offset: Micros = 0
        if faults.fires(Fault.clock_skew, "clock.boot"):
            self._offset = int(faults.size(Fault.clock_skew) * MICROS_PER_SECOND)

    def now(self) -> Micros:
        if self._faults.fires(Fault.clock_jump, "clock.now"):
            self.jump(self._faults.size(Fault.clock_jump))
        return START + self._offset + int((self._loop.time() + self._ahead_s()) * MICROS_PER_SECOND)

    def monotonic_ns(self) -> int:
        return int(self._loop.time() * 1e9)

    def jump(self, seconds: float) -> None:
        """Moves the wall clock forth or back."""
        self._offset += int(seconds * MICROS_PER_SECOND)
