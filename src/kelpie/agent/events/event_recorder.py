"""Stored event stream of a background run: no event is shown to a client before it is stored.

Previews are written in small batches, at most so often; the rest of them goes with the commit of their step, in one
transaction with the messages it commits, so a resumed stream never lacks a committed step. The turn never waits for its
readers, and a batch that could not be written goes with the next one.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kelpie.agent.events import event_json
from kelpie.agent.events.cancellation import Cancellation
from kelpie.agent.events.event_notifier import RunNotifier
from kelpie.agent.events.turn_events import MessageCommitted, StepAbandoned, StreamCut, TurnEnded, TurnEvent, TurnOpened
from kelpie.core.conversations.runs import Run
from kelpie.core.errors import Fenced, StorageError
from kelpie.core.ids import MessageId, RunId, StepId
from kelpie.core.time import Micros
from kelpie.observe import logs
from kelpie.storage.agents import ownership_fence
from kelpie.storage.agents.ownership_fence import Claim
from kelpie.storage.runs import events as run_events
from kelpie.world.database import Tx
from kelpie.world.world import World

FLUSH_S = 0.03
EVENTS_MAX = 100_000  # previews of one run
CHARS_MAX = 64 * 1024 * 1024
_END = "end"

_log = logs.get("agent")


@dataclass(frozen=True, slots=True)
class EventRecord:
    """The previews that a commit stores, and their place in the stream."""

    segment: str
    first: int
    events: tuple[dict[str, Any], ...]
    context_tokens: int | None = None
    cut: bool = False  # the stream is over its bound: nothing more is kept


def keep(tx: Tx, run: Run, record: EventRecord, events: Sequence[TurnEvent], at: Micros) -> None:
    """Stores the events of a commit, after the previews that came before it."""
    if not record.cut:
        own = [event_json.to_json(event) for event in events]
        run_events.append(tx, run.id, record.segment, record.first, record.events, at, own)


def keep_end(
    tx: Tx, run: Run, record: EventRecord | None, events: Sequence[TurnEvent], begun: Sequence[RunId] = ()
) -> None:
    """The same for the commit that ends a background run, in every way it can end: its stream never lacks an end."""
    record = record or EventRecord(_END, 0, ())
    if record.cut:
        return
    ended = event_json.ended_to_json(run, record.context_tokens, begun)
    own = [*(event_json.to_json(event) for event in events), ended]
    run_events.append(tx, run.id, record.segment, record.first, record.events, run.completed_at or 0, own)


def call_off(tx: Tx, run_id: RunId, life: int, at: Micros) -> None:
    """Marks the previews of a step that an earlier life of the turn never committed as abandoned, if there are any."""
    last = run_events.newest(tx, run_id)
    if last and event_json.is_preview(last[-1]):
        shown = last[-1]
        marker = StepAbandoned(MessageId(shown["message_id"]), StepId(shown["step_id"]), at)
        run_events.append(tx, run_id, f"{life}.off", 0, (), at, [event_json.to_json(marker)])


class StoredTurnStream:
    """Stores the events of a background turn. Implements `TurnSink`."""

    def __init__(self, world: World, claim: Claim, run_id: RunId, life: int, broadcast: RunNotifier) -> None:
        self.run_id = run_id
        self.cancellation = Cancellation()
        self._world = world
        self._claim = claim
        self._life = life  # how often the run was resumed; makes the names of segments unique
        self._broadcast = broadcast
        self._number = 0
        self._first = 0
        self._events: list[dict[str, Any]] = []  # of the segment, not known to be stored
        self._emitted = 0
        self._chars = 0
        self._cut = False
        self._ended = False
        self._flusher: asyncio.Task[None] | None = None
        self._writing = False

    def emit(self, event: TurnEvent) -> None:
        """Takes a preview to be stored soon; events of commits are stored already, and readers are only notified."""
        if isinstance(event, TurnOpened):
            return
        if isinstance(event, MessageCommitted | TurnEnded):
            self._broadcast.news(self.run_id)
            return
        if self._cut:
            return
        data = event_json.to_json(event)
        self._emitted += 1
        self._chars += 200 + len(str(data.get("text") or data.get("arguments") or ""))
        if self._emitted > EVENTS_MAX or self._chars > CHARS_MAX:
            self._cut, data = True, event_json.to_json(StreamCut(self.run_id))
        self._events.append(data)
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_soon())

    async def enclose(self, context_tokens: int | None) -> EventRecord:
        """The events that the next commit must store. After it comes `sealed`, or the turn is over."""
        await self._settle()
        cut = self._cut and not self._events
        return EventRecord(self._segment, self._first, tuple(self._events), context_tokens, cut)

    def sealed(self, *, ended: bool, input_stored: bool = True) -> None:
        """The commit is in, and with it all events before it; with `ended` the stored stream has its end."""
        self._ended = ended
        self._events.clear()
        self._first = 0
        self._number += 1

    def close(self) -> None:
        """Ends the stream; a batch that is being written gets to its end by itself."""
        self._cut = True
        self._events.clear()
        if self._flusher is not None and not self._writing:
            self._flusher.cancel()

    @property
    def is_open(self) -> bool:
        """True if more events may follow: not after the stored end."""
        return not self._ended

    @property
    def _segment(self) -> str:
        return f"{self._life}.{self._number}"

    async def _settle(self) -> None:
        """Waits for a batch that is being written; one that is only intended is left to the commit."""
        task = self._flusher
        if task is None:
            return
        if not self._writing:
            task.cancel()
        await asyncio.wait((task,))
        self._flusher = None

    async def _flush_soon(self) -> None:
        while self._events:
            await asyncio.sleep(FLUSH_S)
            self._writing = True
            try:
                if not await self._flush():
                    break
            finally:
                self._writing = False
        self._flusher = None

    async def _flush(self) -> bool:
        events, first, segment, at = tuple(self._events), self._first, self._segment, self._world.clock.now()

        def write(tx: Tx) -> None:
            ownership_fence.advance(tx, self._claim)
            run_events.append(tx, self.run_id, segment, first, events, at)

        try:
            await self._world.database.transact(write)
        except Fenced:
            return False  # the turn learns of it with its next commit
        except StorageError as error:
            _log.warning(
                "stream_events_not_saved",
                "Stream events could not be saved; trying again later",
                run_id=self.run_id,
                error=str(error),
            )
            return False
        self._first += len(events)
        del self._events[: len(events)]
        self._broadcast.news(self.run_id)
        return True
