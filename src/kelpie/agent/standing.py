"""Where an unfinished turn stands, as the journal and the history tell it: what a new life goes on from."""

from collections.abc import Sequence
from dataclasses import dataclass

from kelpie.agent.history import LeftOpen, left_open
from kelpie.agent.journal import Position
from kelpie.core.messages import Message
from kelpie.storage import journal_keys, messages
from kelpie.storage.heads import Claim
from kelpie.storage.unfinished import Unfinished
from kelpie.world.database import Database, Tx


@dataclass(frozen=True, slots=True)
class Standing:
    position: Position
    said: Sequence[Message]  # what the history has of the turn
    left: LeftOpen | None  # the calls it has left open


async def read_standing(database: Database, claim: Claim, unfinished: Unfinished) -> Standing:
    """Where the turn stands for whoever holds the agent now. Raises StorageError.

    A turn that has not taken up its answers yet leaves the calls to whom they wait for.
    """
    run, given = unfinished.run, unfinished.given

    def read(tx: Tx) -> tuple[int, Sequence[Message]]:
        length = journal_keys.length(tx, run.agent_id, run.id)
        return length, messages.of_runs(tx, (*given.earlier, run.id))

    number, said = await database.read(read)
    position = Position(claim, run, number, run.conversation_id or "")
    left = left_open(said) if given.request is None or position.rests_on_history else None
    return Standing(position, said, left)
