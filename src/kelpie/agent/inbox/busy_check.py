"""Check that a conversation is free: it has one turn at a time, and a client that names it does not wait in a queue.

The tokens of the lane's jobs identify the turns: an event buffer, or the run of a turn in the background.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kelpie.actors.dispatcher import Dispatcher
from kelpie.agent.events.event_buffer import TurnStream
from kelpie.core.errors import ConversationBusy
from kelpie.core.ids import AgentId, RunId
from kelpie.storage.runs import unfinished
from kelpie.world.database import Database

if TYPE_CHECKING:
    from kelpie.agent.turn.activation import Activation


async def require_free(
    database: Database, dispatcher: Dispatcher[Activation], agent_id: AgentId, conversation: str
) -> None:
    """Raises ConversationBusy while a turn has not emitted its end.

    Nothing is awaited after the last check, so a caller that submits at once has the conversation.
    """
    over: set[RunId] = set()
    while (run_id := _kept_by(dispatcher.kept_by(agent_id, conversation), over)) is not None:
        if await database.read(lambda tx, run_id=run_id: unfinished.find_unfinished(tx, run_id)) is not None:
            raise ConversationBusy(run_id)
        over.add(run_id)


def _kept_by(tokens: list[object], over: set[RunId]) -> RunId | None:
    """The first background run that is not known to be over. Raises ConversationBusy for a turn with a listener."""
    found: RunId | None = None
    for token in tokens:
        if isinstance(token, TurnStream) and not token.has_ended:
            raise ConversationBusy(token.run_id)
        if isinstance(token, RunId) and token not in over:
            found = found or token
    return found
