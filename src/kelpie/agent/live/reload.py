"""Keeping up with the world outside a turn: what somebody changed since the last commit is read again before the model
is asked, so that a prompt is never older than the last edit acknowledged before its step began.
"""

from kelpie.agent.definition import loaded_agent
from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.prompt.context import Context, load_context
from kelpie.core.agents.agent import Agent
from kelpie.core.errors import KelpieError, StorageBusy
from kelpie.storage.conversations import conversations, messages
from kelpie.world.database import Database, Tx

RELOADS_MAX = 8  # before one model call, should edits keep coming in


class Forgotten(KelpieError):
    """What this turn has said so far was deleted, and the model would be asked without the question."""


async def enter(database: Database, hot: LiveAgent, conversation: str) -> LiveConversation:
    """The lane of a conversation, read if it is not held. Raises NotFound when it was deleted, StorageError."""
    lane = hot.find(conversation)
    if lane is None:
        touches = hot.touches
        loaded = await database.read(lambda tx: loaded_agent.load_thread(tx, hot.claim.agent_id, conversation))
        lane = LiveConversation(conversation, loaded, hot.main.choose, stale=hot.touches != touches)
        hot.add(lane)
    return lane


async def catch_up(database: Database, lane: LiveConversation, position: JournalPosition) -> Context:
    """Reloads what is stale or not there, and gives the context. Raises Forgotten, StorageError."""
    for _ in range(RELOADS_MAX):
        if not lane.stale and lane.context is not None:
            return lane.context
        lane.stale = False
        await _reload(database, lane, position)
    if lane.context is None:
        raise StorageBusy(
            f"The messages of {lane.agent.id} kept changing while they were read. Send the message again."
        )
    return lane.context


async def _reload(database: Database, lane: LiveConversation, position: JournalPosition) -> None:
    """One snapshot for both: a history must not tell of an edit that the memory beside it does not have."""
    known, forgotten, wanted = lane.loaded, lane.forgotten, lane.context is None
    agent, spec = lane.agent, lane.spec

    def read(tx: Tx) -> tuple[AgentSnapshot, Context | None]:
        loaded = _refresh(tx, known)
        return loaded, _read_context(tx, agent, position) if wanted else None

    lane.loaded, context = await database.read(read)
    if context is not None and lane.forgotten == forgotten and lane.spec is spec:  # else it is read once more
        lane.context = context


def _refresh(tx: Tx, known: AgentSnapshot) -> AgentSnapshot:
    if known.conversation is not None and not conversations.is_live(tx, known.conversation.id):
        raise Forgotten
    return loaded_agent.refresh(tx, known)


def _read_context(tx: Tx, agent: Agent, position: JournalPosition) -> Context:
    if position.rests_on_history and not messages.has_run(tx, position.run.id):
        raise Forgotten
    return load_context(tx, agent, position.conversation)
