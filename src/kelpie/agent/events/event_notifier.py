"""Notifier of the readers of background runs. The events themselves are in the database.

Nothing waits for a reader and nothing is queued here: a subscription only remembers that there is something new.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from kelpie.core.errors import KelpieError
from kelpie.core.ids import RunId


class Subscription:
    """One reader of one run."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self.trouble: KelpieError | None = None  # why nothing new may come for a while

    def notify(self) -> None:
        self._news.set()

    def clear(self) -> None:
        self._news.clear()

    async def wait(self, longest_s: float) -> None:
        """Returns when there is something new, or after this time."""
        try:
            async with asyncio.timeout(longest_s):
                await self._news.wait()
        except TimeoutError:
            return


class RunNotifier:
    """The subscriptions of this process, by run."""

    def __init__(self) -> None:
        self._subscriptions: dict[RunId, list[Subscription]] = {}

    @contextmanager
    def listen(self, run_id: RunId) -> Generator[Subscription]:
        """A subscription to a run; subscribe before you read."""
        subscription = Subscription()
        self._subscriptions.setdefault(run_id, []).append(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions[run_id].remove(subscription)
            if not self._subscriptions[run_id]:
                del self._subscriptions[run_id]

    def news(self, run_id: RunId) -> None:
        for subscription in self._subscriptions.get(run_id, ()):
            subscription.notify()

    def trouble(self, run_id: RunId, error: KelpieError) -> None:
        """The run has stopped because of this error; its readers may come again later."""
        for subscription in self._subscriptions.get(run_id, ()):
            subscription.trouble = error
            subscription.notify()
