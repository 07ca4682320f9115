"""The ear of whoever sent a message: a bounded buffer between a turn and its client.

A turn never waits for a listener. One that falls too far behind gets `Lagged` as its last event.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from kelpie.agent.cancellation import Cancellation
from kelpie.agent.events import Lagged, MessageCommitted, TurnEnded, TurnEvent, TurnOpened
from kelpie.core.ids import RunId

EVENTS_MAX = 10_000
CHARS_MAX = 8 * 1024 * 1024


class Turn:
    """One accepted send: its run id, and its events as they happen."""

    def __init__(self, run_id: RunId) -> None:
        self.run_id = run_id
        self.cancellation = Cancellation()
        self._events: deque[TurnEvent] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._over = False
        self._opened = False
        self._ended = False

    def tell(self, event: TurnEvent) -> None:
        """Adds an event; after the last one, or for a listener that lags, it is dropped."""
        self._ended = self._ended or isinstance(event, TurnEnded)
        if self._over:
            return
        self._opened = self._opened or isinstance(event, TurnOpened)
        self._size += _size(event)
        if len(self._events) >= EVENTS_MAX or self._size > CHARS_MAX:
            self._events.clear()
            event = Lagged(self.run_id)
        self._events.append(event)
        self._over = isinstance(event, TurnEnded | Lagged)
        self._news.set()

    async def opened(self) -> None:
        """Waits until there is anything to hear."""
        await self._news.wait()

    @property
    def has_opened(self) -> bool:
        """Whether the turn began; a turn that failed before never did."""
        return self._opened

    @property
    def has_ended(self) -> bool:
        """Whether the turn has told its end, also to a listener that lags."""
        return self._ended

    @property
    def has_more(self) -> bool:
        """Whether the next event can be had without waiting."""
        return bool(self._events)

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """The events so far and to come; ends after TurnEnded or Lagged."""
        while True:
            while self._events:
                event = self._events.popleft()
                self._size -= _size(event)
                yield event
                if isinstance(event, TurnEnded | Lagged):
                    return
            self._news.clear()
            await self._news.wait()


def _size(event: TurnEvent) -> int:
    if not isinstance(event, MessageCommitted):
        return 200
    message = event.message
    return 200 + len(message.text) + sum(len(r.text) for r in message.tool_returns)
