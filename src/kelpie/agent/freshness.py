"""Keeping up with the world outside a turn: what somebody changed since the last commit is read again before the model
is asked, so that a prompt is never older than the last edit acknowledged before its step began.
"""

from kelpie.agent import state
from kelpie.agent.journal import Position
from kelpie.agent.state import Context, Hot
from kelpie.core.agents import Agent
from kelpie.core.errors import KelpieError, StorageBusy
from kelpie.storage import messages
from kelpie.world.database import Database, Tx

RELOADS_MAX = 8  # before one model call, should edits keep coming in


class Forgotten(KelpieError):
    """What this turn has said so far was deleted, and the model would be asked without the question."""


async def catch_up(database: Database, hot: Hot, position: Position) -> None:
    """Reloads what is stale or not there. Raises Forgotten, StorageError."""
    for _ in range(RELOADS_MAX):
        if not hot.stale and position.conversation in hot.contexts:
            return
        hot.stale = False
        await _reload(database, hot, position)
    if position.conversation not in hot.contexts:
        raise StorageBusy(f"The history of {hot.agent.id} changed faster than it could be read. Send it again.")


async def _reload(database: Database, hot: Hot, position: Position) -> None:
    known = hot.loaded
    found = await database.read(lambda tx: state.refresh(tx, known))
    if hot.loaded is known:
        hot.loaded = found
    else:  # another lane committed meanwhile and may know better: look again
        hot.stale = True
    if position.conversation not in hot.contexts:
        agent, forgotten = hot.agent, hot.forgotten
        context = await database.read(lambda tx: _read_context(tx, agent, position))
        if hot.forgotten == forgotten:
            hot.contexts[position.conversation] = context


def _read_context(tx: Tx, agent: Agent, position: Position) -> Context:
    if position.rests_on_history and not messages.has_run(tx, position.run.id):
        raise Forgotten
    return state.load_context(tx, agent, position.conversation)
