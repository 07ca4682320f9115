"""Bound on how often one event is logged: clients could otherwise fill the log. What is not logged is counted."""


class Throttle:
    """At most one line in each interval. Times are seconds of any clock that does not jump."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._next_s = float("-inf")
        self._unlogged = 0
        self.total = 0

    def count(self, now_s: float) -> int:
        """Counts an event. Returns the number of events since the last line if a line is due, else 0."""
        self.total += 1
        self._unlogged += 1
        if now_s < self._next_s:
            return 0
        self._next_s = now_s + self._every_s
        unlogged, self._unlogged = self._unlogged, 0
        return unlogged
