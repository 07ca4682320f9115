"""Search slots: one search runs after the other, and a second one at the same time only beside one that takes long.

Two at once found a fifth more on two cores, and a turn beside them waited twice as long for the interpreter and the
processor as beside one. More than two would keep the database's readers from turns.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

AT_ONCE_MAX = 2
LONG_S = 0.05  # such a search reads an archive into memory, or looks through everything of an organization


class SearchSlots:
    """Semaphore of the searches that run in the database."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)
        self._first = asyncio.Lock()
        self._since = 0.0  # when the first search began, by the event loop's clock

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Waits for a slot and holds it while the body runs."""
        async with self._slots:
            is_first = await self._is_first()
            try:
                yield
            finally:
                if is_first:
                    self._first.release()

    async def _is_first(self) -> bool:
        """True once no other search is first; False when that takes too long."""
        try:
            async with asyncio.timeout_at(self._since + LONG_S):
                await self._first.acquire()
        except TimeoutError:
            return False
        self._since = asyncio.get_running_loop().time()
        return True
