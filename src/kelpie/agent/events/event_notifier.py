"""Tells whoever follows a background run that there is news. The news itself lies in the database.

Nobody is waited for and nothing is queued here: an ear only remembers that something came.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from kelpie.core.errors import KelpieError
from kelpie.core.ids import RunId


class Subscription:
    """One follower of one run."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self.trouble: KelpieError | None = None  # why there may be no news for a while

    def prick(self) -> None:
        self._news.set()

    def clear(self) -> None:
        self._news.clear()

    async def wait(self, longest_s: float) -> None:
        """Returns when there is news, or after a while without."""
        try:
            async with asyncio.timeout(longest_s):
                await self._news.wait()
        except TimeoutError:
            return


class RunNotifier:
    """The ears of this process, by run."""

    def __init__(self) -> None:
        self._ears: dict[RunId, list[Subscription]] = {}

    @contextmanager
    def listen(self, run_id: RunId) -> Generator[Subscription]:
        """An ear for a run; begin to listen before you look."""
        ear = Subscription()
        self._ears.setdefault(run_id, []).append(ear)
        try:
            yield ear
        finally:
            self._ears[run_id].remove(ear)
            if not self._ears[run_id]:
                del self._ears[run_id]

    def news(self, run_id: RunId) -> None:
        for ear in self._ears.get(run_id, ()):
            ear.prick()

    def trouble(self, run_id: RunId, error: KelpieError) -> None:
        """The run stands still because of this error; who follows it may come again later."""
        for ear in self._ears.get(run_id, ()):
            ear.trouble = error
            ear.prick()
