"""The ear of whoever sent a message: a bounded buffer between a turn and its client.

A turn never waits for a listener. One that falls too far behind gets `Lagged` as its last event. Whoever sends the same
messages once more gets an ear of its own, which hears everything from the beginning.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from kelpie.agent.events.cancellation import Cancellation
from kelpie.agent.events.turn_events import Lagged, MessageCommitted, TurnEnded, TurnEvent, TurnOpened
from kelpie.core.conversations.messages import NewMessage, Usage
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import InvariantBroken, KelpieError, Overloaded
from kelpie.core.ids import RunId

EVENTS_MAX = 10_000
CHARS_MAX = 8 * 1024 * 1024
EARS_MAX = 20
RETRY_AFTER_S = 5.0


class TurnStream:
    """One accepted send: its run id, and its events as they happen.

    `messages` are those it would be known by if they came again; with some, what it has told is kept until it ends.
    """

    def __init__(self, run_id: RunId, messages: tuple[NewMessage, ...] = ()) -> None:
        self.run_id = run_id
        self.messages = messages
        self.cancellation = Cancellation()
        self._events: deque[TurnEvent] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._over = False
        self._opened = False
        self._ended = False
        self._left = False
        self._told: list[TurnEvent] = []
        self._told_size = 0
        self._ears: list[TurnStream] = []

    def join(self) -> "TurnStream":
        """One more ear; it hears what was told so far and all that comes. Raises Overloaded when there are too many."""
        self._ears = [ear for ear in self._ears if not ear._left]
        if len(self._ears) >= EARS_MAX:
            raise Overloaded(
                f"Too many clients ({EARS_MAX}) are following {self.run_id}; close one of them first.", RETRY_AFTER_S
            )
        ear = TurnStream(self.run_id)
        ear.cancellation = self.cancellation
        for event in self._told:
            ear.emit(event)
        self._ears.append(ear)
        return ear

    def emit(self, event: TurnEvent) -> None:
        """Adds an event; after the last one, or for a listener that lags, it is dropped."""
        self._ended = self._ended or isinstance(event, TurnEnded)
        if self.messages:
            self._tell_others(event)
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

    async def enclose(self, context_tokens: int | None) -> None:
        """Nothing: events in memory need no part in a commit."""

    def sealed(self, *, ended: bool) -> None:
        """Nothing: the events of the commit follow one by one."""

    def break_off(self, error: KelpieError) -> None:
        """Tells the last word of a turn that could not be recorded to its end."""
        self.emit(TurnEnded(self.run_id, StopReason.error, Usage(), 0, None, error))

    def _tell_others(self, event: TurnEvent) -> None:
        for ear in self._ears:
            if not ear._left:
                ear.emit(event)
        self._told_size += _size(event)
        if len(self._told) >= EVENTS_MAX or self._told_size > CHARS_MAX:
            self._told = [Lagged(self.run_id)]
        else:
            self._told.append(event)

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
    def is_open(self) -> bool:
        """Whether more events may follow."""
        return not self._ended

    @property
    def has_more(self) -> bool:
        """Whether the next event can be had without waiting."""
        return bool(self._events)

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """The events so far and to come; ends after TurnEnded or Lagged. Whoever leaves before is not waited for."""
        try:
            while True:
                while self._events:
                    event = self._events.popleft()
                    self._size -= _size(event)
                    yield event
                    if isinstance(event, TurnEnded | Lagged):
                        return
                self._news.clear()
                await self._news.wait()
        finally:
            self._left = True


def emit_failure(turn: TurnStream, done: asyncio.Future[None]) -> None:
    """A job that failed before its turn could speak: the listener hears of it all the same."""
    if done.cancelled():
        turn.break_off(InvariantBroken("The turn was interrupted."))
        return
    error = done.exception()
    if error is not None:
        turn.break_off(error if isinstance(error, KelpieError) else InvariantBroken(f"{type(error).__name__}: {error}"))


def _size(event: TurnEvent) -> int:
    if not isinstance(event, MessageCommitted):
        return 200
    message = event.message
    return 200 + len(message.text) + sum(len(r.text) for r in message.tool_returns)
