"""Where an unfinished turn stands, as the journal and the history tell it: what a new life goes on from."""

from collections.abc import Sequence
from dataclasses import dataclass

from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.prompt.wellformed_history import LeftOpen, left_open
from kelpie.core.conversations.messages import Message
from kelpie.storage.agents.ownership_fence import Claim
from kelpie.storage.conversations import messages
from kelpie.storage.runs import journal_keys
from kelpie.storage.runs.unfinished import Unfinished
from kelpie.world.database import Database, Tx


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    position: JournalPosition
    said: Sequence[Message]  # what the history has of the turn
    left: LeftOpen | None  # the calls it has left open


async def read_standing(database: Database, claim: Claim, unfinished: Unfinished) -> RecoveryPoint:
    """Where the turn stands for whoever holds the agent now. Raises StorageError.

    A turn that has not taken up its answers yet leaves the calls to whom they wait for.
    """
    run, given = unfinished.run, unfinished.given

    def read(tx: Tx) -> tuple[int, Sequence[Message]]:
        length = journal_keys.length(tx, run.agent_id, run.id)
        return length, messages.of_runs(tx, (*given.earlier, run.id))

    number, said = await database.read(read)
    position = JournalPosition(claim, run, number, run.conversation_id or "")
    left = left_open(said) if given.request is None or position.rests_on_history else None
    return RecoveryPoint(position, said, left)
