"""Who waits for whom: turns that stand still until another agent's lane has answered.

A lane runs one turn at a time, so two lanes that wait for each other would wait for ever, be it directly or through
others. Every wait is entered here before it begins, and one that would close a ring is refused. This sees the agents of
one process; across processes the chain of a message and the time-out do it.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from kelpie.core.errors import ToolError
from kelpie.core.ids import AgentId

Lane = tuple[AgentId, str]  # an agent and one of its conversations; the default one is the empty string


class Waits:
    """The lanes that wait, and for which others."""

    def __init__(self) -> None:
        self._for: dict[Lane, Counter[Lane]] = {}

    @contextmanager
    def waiting(self, waiter: Lane, other: Lane) -> Generator[None]:
        """Enters a wait for as long as it lasts. Raises ToolError when the other one waits for this one."""
        if self._reaches(other, waiter):
            raise ToolError(
                f"Agent {other[0]} is itself waiting for an answer of yours, so it cannot answer now; nothing was "
                "sent. Finish this turn first, or send it a message that needs no answer."
            )
        held = self._for.setdefault(waiter, Counter())
        held[other] += 1
        try:
            yield
        finally:
            held[other] -= 1
            if not held[other]:
                del held[other]
            if not held and self._for.get(waiter) is held:
                del self._for[waiter]

    def _reaches(self, start: Lane, goal: Lane) -> bool:
        seen, left = {start}, [start]
        while left:
            lane = left.pop()
            if lane == goal:
                return True
            for further in self._for.get(lane, ()):
                if further not in seen:
                    seen.add(further)
                    left.append(further)
        return False
