"""Periodic worker: does the work that is due, then waits until it is woken or a timeout has passed.

A wake-up that arrives while work runs is not lost: the next round starts at once. Failures of the kind that Kelpie
expects are reported and followed by another round; anything else is a bug and ends `run` (see
`background.run_forever`). Nothing is queued in here: the work itself must find out from the database what is due.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kelpie.core.errors import KelpieError


class PeriodicWorker:
    """Loop around one kind of background work.

    `work` does what is due and returns the longest time in seconds until its next round; 0 means that there is more to
    do. `failed` gets the KelpieError of a round that failed, whose next round follows after at most `retry_s`.
    """

    def __init__(
        self, work: Callable[[], Awaitable[float]], *, failed: Callable[[KelpieError], None], retry_s: float
    ) -> None:
        self._work = work
        self._failed = failed
        self._retry_s = retry_s
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Starts the next round now, or right after the round that is running."""
        self._woken.set()

    async def run(self) -> None:
        """Never returns."""
        while True:
            self._woken.clear()
            try:
                pause_s = await self._work()
            except KelpieError as error:
                self._failed(error)
                pause_s = self._retry_s
            await self._wait(pause_s)

    async def _wait(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)  # work that never has to wait for anything must not keep the event loop
            return
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return
