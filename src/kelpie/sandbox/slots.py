"""Slots for jobs: a limit on jobs that a person or a model requested, and further slots for jobs that jobs request.

Code that calls other code keeps its slot while it waits. If both used the same slots, as many callers as there are
slots would wait for each other until they time out. So each level has slots of its own, half as many as the one below
but no less than two, and a job waits only for jobs of higher levels.
"""

import asyncio

from kelpie.core.errors import ToolError

WAIT_S = 120.0


def slots_of(level: int, most: int) -> int:
    """The slots of a level, given those of the lowest."""
    return most if level == 0 else max(2, most >> level)


class JobSlots:
    def __init__(self, most: int, waiting_max: int) -> None:
        self.most = most
        self.waiting = 0
        self._waiting_max = waiting_max
        self._levels: dict[int, asyncio.Semaphore] = {}

    async def take(self, level: int) -> None:
        """Waits for a slot. Raises ToolError when too many wait, or for too long."""
        if self.waiting >= self._waiting_max:
            raise ToolError(f"the sandbox is busy: {self._waiting_max} calls are already waiting; try again later")
        self.waiting += 1
        try:
            async with asyncio.timeout(WAIT_S):
                await self._level(level).acquire()
        except TimeoutError:
            raise ToolError(f"no sandbox was free within {WAIT_S:.0f} s; try again later") from None
        finally:
            self.waiting -= 1

    def give_back(self, level: int) -> None:
        self._level(level).release()

    def _level(self, level: int) -> asyncio.Semaphore:
        if level not in self._levels:  # there are not many: a chain of calls is bounded
            self._levels[level] = asyncio.Semaphore(slots_of(level, self.most))
        return self._levels[level]
