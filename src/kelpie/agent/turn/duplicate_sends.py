"""Messages that come again under the ids that their client gave them: whoever lost the answer gets it after all.

While their turn runs, one more ear listens to it; afterwards what it has committed is told again. Nothing is said or
run twice. What failed is tried anew, and other words under the same ids are other messages.
"""

from collections.abc import Iterable

from kelpie.agent.events.event_buffer import TurnStream
from kelpie.agent.turn.approval_answers import Replay
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.conversations.runs import UNFINISHED, Run, RunStatus
from kelpie.core.ids import AgentId
from kelpie.storage.conversations import messages
from kelpie.storage.runs import client_ids, runs, unfinished
from kelpie.storage.runs.input import RunInput
from kelpie.world.database import Database, Tx


def can_come_again(sent: SendRequest | RunInput) -> bool:
    """Whether it would be known: all its messages have an id of the client's."""
    return bool(sent.messages) and all(message.otid is not None for message in sent.messages)


def running(tokens: Iterable[object], send: SendRequest) -> TurnStream | None:
    """The turn that answers these very messages now, of those that a lane has."""
    for token in tokens:
        if isinstance(token, TurnStream) and not token.has_ended and token.messages == send.messages:
            return token
    return None


def find(tx: Tx, agent_id: AgentId, conversation: str, given: RunInput) -> Run | None:
    """The newest run that answers these very messages already, or is about to; one that failed is no answer."""
    if not can_come_again(given):
        return None
    run_id = client_ids.latest(tx, agent_id, given.messages[0].otid or "")
    if run_id is None or unfinished.given(tx, run_id).messages != given.messages:
        return None
    run = runs.get(tx, run_id)
    return run if (run.conversation_id or "") == conversation and run.status is not RunStatus.failed else None


async def told_before(database: Database, agent_id: AgentId, send: SendRequest) -> Replay | None:
    """What came of these messages, if their turn is over and the history still has it. Raises StorageError."""

    def read(tx: Tx) -> Replay | None:
        run = find(tx, agent_id, send.conversation, send.given)
        if run is None or run.status in UNFINISHED:
            return None
        said = messages.of_run(tx, run.id)
        return Replay(run, said) if said or not run.step_count else None

    return await database.read(read)
