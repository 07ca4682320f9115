"""Wait graph: the lanes whose turns wait for the answer of another agent's lane.

A lane runs one turn at a time, so two lanes that wait for each other would wait for ever, be it directly or through
others. Every wait is entered here before it begins, and one that would close a ring is refused. This sees the agents of
one process; across processes the chain of a message and the time-out do it.

Code that waits for an agent holds its place in the sandbox, and the agent may be busy with a turn whose code needs one.
So one place of each level is kept free of waiting code: the code in it comes to an end. An organization that has its
share of the places must keep one of its own free as well.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from kelpie.core.access.passports import Passport
from kelpie.core.errors import Overloaded, ToolError
from kelpie.core.ids import AgentId
from kelpie.core.time import Micros
from kelpie.sandbox.slots import JobSlots, slots_of

RETRY_S = 1.0

Lane = tuple[AgentId, str]  # an agent and one of its conversations; the default one is the empty string


class WaitGraph:
    """The lanes that wait, and for which others."""

    def __init__(self, places: int, slots: JobSlots | None = None) -> None:
        """`places` is how many pieces of code run at once; `slots` are the sandbox's, if there is one."""
        self._for: dict[Lane, Counter[Lane]] = {}
        self._places = places
        self._slots = slots
        self._code: dict[int, Counter[Passport]] = {}  # by level; a piece of code may wait for several at once

    @contextmanager
    def waiting(self, waiter: Lane, other: Lane) -> Generator[None]:
        """Enters a wait for as long as it lasts. Raises ToolError when the other one waits for this one."""
        if self._reaches(other, waiter):
            raise ToolError(
                f"Agent {other[0]} is itself waiting for an answer from you, so it cannot answer now. Nothing was "
                "sent. Finish this turn first, or send a message that needs no answer."
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

    @contextmanager
    def of_code(self, passport: Passport, now: Micros) -> Generator[None]:
        """Enters that code waits for an agent. Raises Overloaded when the last place would be held by one who waits;
        where there is but one, it may be. An agent may answer code that is over: who has no time left holds no place.
        """
        level = passport.chain.hops - 1
        waiting = self._code.setdefault(level, Counter())
        others = [each for each in waiting if each != passport and each.expires_at > now]
        if len(others) >= max(1, slots_of(level, self._places) - 1) or self._all_wait(passport, level, others):
            raise Overloaded(
                "code_waiting_full",
                "Too much tool code is already waiting for answers from agents, so the message was not sent. Try "
                "again later, or send a message that needs no answer.",
                RETRY_S,
            )
        waiting[passport] += 1
        try:
            yield
        finally:
            waiting[passport] -= 1
            if not waiting[passport]:
                del waiting[passport]

    def _all_wait(self, passport: Passport, level: int, others: Sequence[Passport]) -> bool:
        """Checks whether all code that its organization may run would wait; the first to wait always may."""
        own = sum(each.organization_id == passport.organization_id for each in others)
        return own > 0 and self._slots is not None and self._slots.all_wait(level, passport.organization_id, own + 1)

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
