"""Search slots: one search runs after the other, and a second one at the same time only beside one that takes long.

Two at once found a fifth more on two cores, and a turn beside them waited twice as long for the interpreter and the
processor as beside one. More than two would keep the database's readers from turns. Organizations, then their agents,
take turns.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from kelpie.core.access.consumers import Consumer
from kelpie.fairness.fair_slots import FairSlots, SlotLimits

AT_ONCE_MAX = 2
LONG_S = 0.05  # such a search reads an archive into memory, or looks through everything of an organization
LIMITS = SlotLimits("search_queue_full", "search slot", 1, waiting_max=256, wait_s=30.0)


class SearchSlots:
    """The slots of the searches that run in the database."""

    def __init__(self) -> None:
        self._slots = FairSlots(LIMITS)
        self._long = 0  # searches that run and take long

    @asynccontextmanager
    async def slot(self, consumer: Consumer) -> AsyncGenerator[None]:
        """Holds a slot while the body runs. Raises Overloaded when too many wait, or for too long."""
        async with self._slots.slot(consumer):
            search = _Search()
            timer = asyncio.get_running_loop().call_later(LONG_S, self._takes_long, search)
            try:
                yield
            finally:
                timer.cancel()
                if search.long:
                    self._long -= 1
                    self._resize()

    def _takes_long(self, search: "_Search") -> None:
        search.long = True
        self._long += 1
        self._resize()

    def _resize(self) -> None:
        self._slots.resize(min(AT_ONCE_MAX, LIMITS.slots + self._long))


class _Search:
    """A search that runs, and whether it takes long."""

    __slots__ = ("long",)

    def __init__(self) -> None:
        self.long = False
