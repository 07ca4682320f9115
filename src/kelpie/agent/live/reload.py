"""Reload of a live conversation: what changed outside its turn is read again before the model is asked, so that a
prompt is never older than the last edit acknowledged before its step began.
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
    """The rows of this turn were deleted, and the model would be asked without the question."""


async def enter(database: Database, live: LiveAgent, conversation_id: str) -> LiveConversation:
    """The live conversation, read if it is not in memory. Raises NotFound when it was deleted, StorageError."""
    found = live.find(conversation_id)
    if found is None:
        touches = live.touches
        loaded = await database.read(lambda tx: loaded_agent.load_thread(tx, live.claim.agent_id, conversation_id))
        found = LiveConversation(conversation_id, loaded, live.main.choose, stale=live.touches != touches)
        live.add(found)
    return found


async def catch_up(database: Database, conversation: LiveConversation, position: JournalPosition) -> Context:
    """Reloads what is stale or missing, and returns the context. Raises Forgotten, StorageError."""
    for _ in range(RELOADS_MAX):
        if not conversation.stale and conversation.context is not None:
            return conversation.context
        conversation.stale = False
        await _reload(database, conversation, position)
    if conversation.context is None:
        agent_id = conversation.agent.id
        raise StorageBusy(f"The messages of {agent_id} kept changing while they were read. Send the message again.")
    return conversation.context


async def _reload(database: Database, conversation: LiveConversation, position: JournalPosition) -> None:
    """One snapshot for both: a history must not tell of an edit that the memory beside it does not have."""
    known, forgotten, wanted = conversation.loaded, conversation.forgotten, conversation.context is None
    agent, spec = conversation.agent, conversation.spec

    def read(tx: Tx) -> tuple[AgentSnapshot, Context | None]:
        loaded = _refresh(tx, known)
        return loaded, _read_context(tx, agent, position) if wanted else None

    conversation.loaded, context = await database.read(read)
    if context is None:
        return
    if conversation.forgotten == forgotten and conversation.spec is spec:  # else it is read once more
        conversation.context = context


def _refresh(tx: Tx, known: AgentSnapshot) -> AgentSnapshot:
    if known.conversation is not None and not conversations.is_live(tx, known.conversation.id):
        raise Forgotten
    return loaded_agent.refresh(tx, known)


def _read_context(tx: Tx, agent: Agent, position: JournalPosition) -> Context:
    if position.rests_on_history and not messages.has_run(tx, position.run.id):
        raise Forgotten
    return load_context(tx, agent, position.conversation)
