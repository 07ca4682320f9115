"""Port between a turn and the receivers of its events. A turn never waits for a receiver."""

from typing import Protocol

from kelpie.agent.events.cancellation import Cancellation
from kelpie.agent.events.event_recorder import EventRecord
from kelpie.agent.events.turn_events import TurnEvent
from kelpie.core.ids import RunId


class TurnSink(Protocol):
    """Receiver of the events of one turn, with the request to cancel it."""

    run_id: RunId
    cancellation: Cancellation

    @property
    def is_open(self) -> bool:
        """True if more events may follow; a stored stream is complete with the commit that ends its run."""
        ...

    def emit(self, event: TurnEvent) -> None:
        """Takes an event; must not wait."""
        ...

    async def enclose(self, context_tokens: int | None) -> EventRecord | None:
        """The events that the next commit must store; None when it need not store any."""
        ...

    def sealed(self, *, ended: bool, input_stored: bool = True) -> None:
        """The commit is done, and with it what it stored of the stream; `ended` when it ended the turn, `input_stored`
        when the input of the turn is in the history with it."""
        ...
