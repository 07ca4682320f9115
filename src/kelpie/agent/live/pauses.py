"""Pauses of agents. A paused agent answers messages; it takes no step of its own accord, and everything that would
make it take one asks here first.

The pause itself is stored and ends by the wall clock. Because that clock may be set back, the end is also held by the
clock that cannot jump, from the moment this process first saw the pause: so it never lasts longer than was asked.
"""

from kelpie.core.agents.agent import Agent
from kelpie.core.ids import AgentId
from kelpie.core.time import Micros
from kelpie.world.clock import Clock

KEPT_MAX = 10_000  # beyond it the oldest go, and for those the wall clock alone decides
_NS = 1000


class Pauses:
    """The pauses that this process has seen."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[AgentId, tuple[Micros, int]] = {}  # the end by the wall clock, and by the monotonic clock

    def until(self, agent: Agent) -> Micros | None:
        """Until when the agent is paused; None when it is not."""
        begin, until = agent.paused_at, agent.paused_until
        if begin is None or until is None:
            return None
        now = self._clock.now()
        if not begin <= now < until:  # a clock before the beginning was set back: the rest is unknown
            self._ends.pop(agent.id, None)
            return None
        return until if self._clock.monotonic_ns() < self._end(agent.id, until, now) else None

    def _end(self, agent_id: AgentId, until: Micros, now: Micros) -> int:
        seen, end = self._ends.get(agent_id, (None, 0))
        if seen != until:
            end = self._clock.monotonic_ns() + (until - now) * _NS
            self._ends.pop(agent_id, None)
            self._ends[agent_id] = (until, end)
            if len(self._ends) > KEPT_MAX:
                del self._ends[next(iter(self._ends))]
        return end
