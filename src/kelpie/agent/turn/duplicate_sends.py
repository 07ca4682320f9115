"""Duplicate sends: a client that lost the answer sends the same messages again, under the ids that it gave them.

While their turn runs, the client gets a second stream of it; afterwards the committed messages are emitted again.
Nothing runs twice. A turn that failed runs again, and another text under the same ids is another message. In the
default conversation only the newest run can be meant: a client that gives all its messages one id is heard each time
that others have sent something in between.
"""

from __future__ import annotations

from collections.abc import Iterable

from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.conversations.runs import UNFINISHED, Run, RunStatus
from kelpie.core.errors import Conflict
from kelpie.core.ids import AgentId
from kelpie.storage.conversations import messages
from kelpie.storage.runs import client_ids, runs, unfinished
from kelpie.storage.runs.input import RunInput
from kelpie.world.database import Database, Tx
from kelpie.world.lazy_imports import lazily

with lazily:
    from kelpie.agent.turn import approval_answers as _approval_answers

BATCH_ITEM = "batch_item"  # in the metadata of a run: its place in the batch
SAME_ID_MAX = 16  # runs of one client id that are looked through; a client that gives an id to more has no use for it


def can_come_again(sent: SendRequest | RunInput) -> bool:
    """True if a duplicate could be recognised: all messages have an id of the client."""
    return bool(sent.messages) and all(message.otid is not None for message in sent.messages)


def running(tokens: Iterable[object], send: SendRequest) -> TurnStream | None:
    """The running turn of a lane that answers these very messages."""
    for token in tokens:
        if isinstance(token, TurnStream) and not token.has_ended and token.messages == send.messages:
            return token
    return None


def find(tx: Tx, agent_id: AgentId, conversation: str, given: RunInput, *, batch_item: int | None = None) -> Run | None:
    """The newest run that answers these very messages already, or is about to; one that failed is no answer, nor is
    one in the default conversation that another has followed. The items of a batch follow each other, so for one of
    them a run of an item at the same place in another batch is an answer all the same."""
    if not can_come_again(given):
        return None
    for run_id in client_ids.newest(tx, agent_id, conversation, given.messages[0].otid or "", SAME_ID_MAX):
        if unfinished.given(tx, run_id).messages == given.messages:
            run = runs.get(tx, run_id)
            same_item = batch_item is not None and run.metadata.get(BATCH_ITEM) == batch_item
            followed = run.status not in UNFINISHED and not conversation and runs.has_newer(tx, run)
            over = followed and not same_item
            return None if over or run.status is RunStatus.failed else run
    return None


async def refuse_halfway(database: Database, agent_id: AgentId, send: SendRequest) -> None:
    """Raises Conflict when these messages are in the history already, of a turn that failed after that."""

    def read(tx: Tx) -> bool:
        named = client_ids.newest(tx, agent_id, send.conversation, send.messages[0].otid or "", SAME_ID_MAX)
        return any(messages.has_run(tx, run_id) for run_id in named)

    if await database.read(read):
        raise Conflict("This message was sent before, and its turn failed halfway. Send it again as a new request.")


async def find_replay(database: Database, agent_id: AgentId, send: SendRequest) -> _approval_answers.Replay | None:
    """The earlier turn of these messages, if it is over and the history still has it. Raises StorageError."""

    def read(tx: Tx) -> _approval_answers.Replay | None:
        run = find(tx, agent_id, send.conversation, send.given)
        if run is None or run.status in UNFINISHED:
            return None
        said = messages.of_run(tx, run.id)
        return _approval_answers.Replay(run, said) if said or not run.step_count else None

    return await database.read(read)
