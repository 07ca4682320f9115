"""Amounts in the last minute or day, on the event loop's clock.

The span is divided into slots, so that memory is bounded whatever the traffic. A slot expires when all of it is older
than the span: the count is never too low, and too high by one slot at most.
"""

from collections import deque

SLOTS = 60


class Slot:
    """The amount counted between two moments."""

    __slots__ = ("amount", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.amount = 0


class SlidingWindow:
    """A limit on a sliding span of time."""

    def __init__(self, limit: int, span_s: float) -> None:
        self.limit = limit
        self._span_s = span_s
        self._slot_s = span_s / SLOTS
        self._slots: deque[Slot] = deque()

    def add(self, amount: int, now: float) -> Slot:
        """Counts an amount. The returned slot can be used to subtract the amount again."""
        number = int(now // self._slot_s)
        if not self._slots or self._slots[-1].number != number:
            self._expire(now)
            self._slots.append(Slot(number))
        slot = self._slots[-1]
        slot.amount += amount
        return slot

    def spent(self, now: float) -> int:
        self._expire(now)
        return sum(slot.amount for slot in self._slots)

    def opens_at(self, amount: int, now: float) -> float:
        """The time when this much more fits; not after `now` when it fits already.

        An amount larger than the limit itself fits into an empty window, since it would wait for ever otherwise.
        """
        over = self.spent(now) + min(amount, self.limit) - self.limit
        moment = now
        for slot in self._slots:
            if over <= 0:
                break
            over -= slot.amount
            moment = self._leaves_at(slot)
        return moment

    def _leaves_at(self, slot: Slot) -> float:
        return (slot.number + 1) * self._slot_s + self._span_s

    def _expire(self, now: float) -> None:
        while self._slots and self._leaves_at(self._slots[0]) <= now:
            self._slots.popleft()
