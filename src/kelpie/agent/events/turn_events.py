"""Events of a turn. A delta is a preview; a `MessageCommitted` is final.

A turn never waits for a client: each has a bounded buffer, and one that falls behind is dropped with `Lagged`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.core.conversations.messages import Message, Role, Usage
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import KelpieError
from kelpie.core.ids import MessageId, RunId, StepId
from kelpie.core.time import Micros


@dataclass(frozen=True, slots=True)
class TurnOpened:
    """The turn has its run; its input is being committed."""

    run_id: RunId
    at: Micros


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """A piece of text for the user. `part` is the index of this part within its message."""

    message_id: MessageId
    step_id: StepId
    at: Micros
    part: int
    text: str


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """A piece of reasoning; `native` distinguishes a reasoning model's own from a tool argument."""

    message_id: MessageId
    step_id: StepId
    at: Micros
    part: int
    text: str
    native: bool
    hidden: bool = False  # the text is the provider's opaque form, and all of it


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a tool call: the first has the name, the others fragments of the arguments."""

    message_id: MessageId
    step_id: StepId
    at: Micros
    part: int
    call_id: str
    name: str | None = None
    arguments: str | None = None
    awaits: bool = False  # calls of this tool wait for an approval or the client


@dataclass(frozen=True, slots=True)
class MessageCommitted:
    """A row of the history is durable. `previewed` means that clients got its content as deltas before."""

    message: Message
    previewed: bool = False


@dataclass(frozen=True, slots=True)
class Compacting:
    """The context is about to be compacted; the summary follows as a message. `event_id` is for clients."""

    run_id: RunId
    event_id: str
    at: Micros
    step_id: StepId | None
    trigger: str
    tokens: int
    window: int


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The last event of every turn. With an error, `stop_reason` is its family and `error` the cause."""

    run_id: RunId
    stop_reason: StopReason
    usage: Usage
    step_count: int
    context_tokens: int | None
    error: KelpieError | None = None
    detail: str | None = None  # Kelpie's own reason, where the wire has no word for it
    run_ids: tuple[RunId, ...] = ()  # of companions that this turn gave something to do
    budget: Mapping[str, Any] | None = None  # that is used up, with what to do about it
    input_stored: bool = False  # with an error: the input is in the history, and must not be sent again


@dataclass(frozen=True, slots=True)
class Lagged:
    """The client was too slow and gets nothing more; the turn continues, and the history has everything."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class StepAbandoned:
    """Previews of this message are void: the server died in its step, which runs again."""

    message_id: MessageId
    step_id: StepId
    at: Micros


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """How far a running tool call has come, as its tool says."""

    run_id: RunId
    step_id: StepId
    at: Micros
    call_id: str
    name: str
    done: float
    total: float | None
    message: str | None


@dataclass(frozen=True, slots=True)
class StreamCut:
    """The stream of a background run grew over its bound and ends here; the run continues without it."""

    run_id: RunId


TurnEvent = (
    TurnOpened
    | AnswerDelta
    | ThoughtDelta
    | CallDelta
    | MessageCommitted
    | Compacting
    | TurnEnded
    | Lagged
    | StepAbandoned
    | ToolProgress
    | StreamCut
)


def committed_events(
    rows: Iterable[Message], nudge_id: MessageId, *, previewed: bool, heartbeats: bool
) -> tuple[MessageCommitted, ...]:
    """The events of a commit: for the agent's rows, not for its input. Where heartbeats are no part of the agent type,
    the server's own message is shown as well."""
    return tuple(
        MessageCommitted(row, previewed and row.is_reply)
        for row in rows
        if row.is_reply or row.role is Role.tool or (row.id == nudge_id and not heartbeats)
    )
