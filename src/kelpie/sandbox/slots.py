"""Slots for jobs: a limit on jobs that a person or a model requested, and further slots for jobs that jobs request.

Code that calls other code keeps its slot while it waits. If both used the same slots, as many callers as there are
slots would wait for each other until they time out. So each level has slots of its own, half as many as the one below
but no less than two, and a job waits only for jobs of higher levels. The same holds for memory: the sum of the memory
limits of a level's jobs is bounded, by half of what all levels have together and by half as much on each further level;
a job alone on its level always fits. Organizations, then their agents, take turns.
"""

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import Overloaded, ToolError
from kelpie.fairness.fair_slots import FairSlots, SlotLimits
from kelpie.fairness.organization_share import OrganizationShare

WAIT_S = 120.0


def slots_of(level: int, most: int) -> int:
    """The slots of a level, given those of the lowest."""
    return most if level == 0 else max(2, most >> level)


def memory_of(level: int, total_bytes: int) -> int:
    """The memory of a level, given that of all levels together."""
    return total_bytes >> (level + 1)


class JobSlots:
    """`waiting_max` is how many calls of one organization may wait; without `memory_bytes`, memory is not bounded."""

    def __init__(
        self, most: int, waiting_max: int, memory_bytes: int | None = None, share: OrganizationShare | None = None
    ) -> None:
        self.most = most
        self._waiting_max = waiting_max
        self._memory_bytes = memory_bytes
        self._share = share
        self._levels: dict[int, FairSlots] = {}

    @property
    def waiting(self) -> int:
        return sum(level.waiting for level in self._levels.values())

    async def take(self, level: int, consumer: Consumer, memory_bytes: int) -> None:
        """Takes a slot, in turn. Raises ToolError when too many of the organization wait, or for too long."""
        try:
            await self._level(level).take(consumer, memory_bytes)
        except Overloaded as error:
            raise ToolError(f"the sandbox is busy: {error}") from error

    def give_back(self, level: int, consumer: Consumer, memory_bytes: int) -> None:
        self._level(level).give_back(consumer, memory_bytes)

    def all_wait(self, level: int, organization: str, waiting: int) -> bool:
        """Checks whether no code of this organization could go on, if so many of its jobs on the level waited."""
        slots = self._level(level)
        return slots.held_by(organization) <= waiting and not slots.has_room(organization)

    def _level(self, level: int) -> FairSlots:
        if level not in self._levels:  # there are not many: a chain of calls is bounded
            memory = None if self._memory_bytes is None else memory_of(level, self._memory_bytes)
            limits = SlotLimits(
                "sandbox_full", "sandbox", slots_of(level, self.most), self._waiting_max, WAIT_S, memory
            )
            self._levels[level] = FairSlots(limits, self._share)
        return self._levels[level]
