"""Event buffer between a turn and the client that sent its message.

A turn never waits for a client. One that falls too far behind gets `Lagged` as its last event. A client that sends the
same messages once more gets a buffer of its own, with all events from the beginning.
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
JOINED_MAX = 20
RETRY_AFTER_S = 5.0


class TurnStream:
    """Events of one accepted send as they happen. Implements `TurnSink`.

    `messages` identify the send if it comes again; with some, its events are kept until it ends.
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
        self._input_stored = False
        self._emitted: list[TurnEvent] = []
        self._emitted_size = 0
        self._joined: list[TurnStream] = []

    def join(self) -> "TurnStream":
        """A further buffer with the events so far and all that follow. Raises Overloaded when there are too many."""
        self._joined = [joined for joined in self._joined if not joined._left]
        if len(self._joined) >= JOINED_MAX:
            raise Overloaded(
                "followers_full",
                f"Too many clients ({JOINED_MAX}) are following {self.run_id}; close one of them first.",
                RETRY_AFTER_S,
            )
        joined = TurnStream(self.run_id)
        joined.cancellation = self.cancellation
        for event in self._emitted:
            joined.emit(event)
        self._joined.append(joined)
        return joined

    def emit(self, event: TurnEvent) -> None:
        """Adds an event; after the last one, or for a client that lags, it is dropped."""
        self._ended = self._ended or isinstance(event, TurnEnded)
        if self.messages:
            self._emit_to_joined(event)
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

    def sealed(self, *, ended: bool, input_stored: bool = True) -> None:
        """Only notes that the input is stored: the events of the commit follow one by one."""
        self._input_stored = self._input_stored or input_stored

    def break_off(self, error: KelpieError) -> None:
        """Emits the end of a turn that could not be stored to its end."""
        self.emit(TurnEnded(self.run_id, StopReason.error, Usage(), 0, None, error, input_stored=self._input_stored))

    def _emit_to_joined(self, event: TurnEvent) -> None:
        for joined in self._joined:
            if not joined._left:
                joined.emit(event)
        self._emitted_size += _size(event)
        if len(self._emitted) >= EVENTS_MAX or self._emitted_size > CHARS_MAX:
            self._emitted = [Lagged(self.run_id)]
        else:
            self._emitted.append(event)

    async def opened(self) -> None:
        """Waits for the first event."""
        await self._news.wait()

    @property
    def has_opened(self) -> bool:
        """True if the turn began; a turn that failed before never did."""
        return self._opened

    @property
    def has_ended(self) -> bool:
        """True if the turn has emitted its end, also when the client lags."""
        return self._ended

    @property
    def is_open(self) -> bool:
        """True if more events may follow."""
        return not self._ended

    @property
    def has_more(self) -> bool:
        """True if the next event is there already."""
        return bool(self._events)

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """The events so far and to come; ends after TurnEnded or Lagged. A client may leave before."""
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
    """Emits the end of a turn whose job failed before the turn could."""
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
