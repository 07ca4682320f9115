"""Reload of a live conversation: what changed outside its turn is read again.

Before the model is asked all of it is, so that a prompt is never older than the last edit acknowledged before its step
began. Before calls run the permissions are: one that was taken away does not let the next call through.
"""

from dataclasses import replace

from kelpie.agent.definition import loaded_agent
from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.live.spending import calls_used
from kelpie.agent.prompt.context import Context, load_context
from kelpie.core.agents.agent import Agent
from kelpie.core.errors import KelpieError, NotFound, StorageBusy
from kelpie.core.permissions.policies import EffectivePermissions, Policy, warrant
from kelpie.core.permissions.quotas import hour_after
from kelpie.core.time import Micros
from kelpie.storage.conversations import conversations, messages
from kelpie.world.database import Database, Tx

RELOADS_MAX = 8  # at once, should edits keep coming in


class HistoryDeleted(KelpieError):
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
    """One snapshot for both: a history must not mention an edit that the memory beside it does not have."""
    known, forgotten, wanted = conversation.loaded, conversation.forgotten, conversation.context is None
    agent, spec = conversation.agent, conversation.spec

    def read(tx: Tx) -> tuple[AgentSnapshot, Context | None]:
        loaded = _refresh(tx, known)
        return loaded, _read_context(tx, agent, position) if wanted else None

    loaded, context = await database.read(read)
    conversation.renew(loaded)
    if context is not None and conversation.forgotten == forgotten and conversation.spec is spec:
        conversation.context = context  # else it is read once more


def _refresh(tx: Tx, known: AgentSnapshot) -> AgentSnapshot:
    if known.conversation is not None and not conversations.is_live(tx, known.conversation.id):
        raise HistoryDeleted
    return loaded_agent.refresh(tx, known)


def _read_context(tx: Tx, agent: Agent, position: JournalPosition) -> Context:
    if position.rests_on_history and not messages.has_run(tx, position.run.id):
        raise HistoryDeleted
    return load_context(tx, agent, position.conversation)


async def current_permissions(
    database: Database, server: Policy, live: LiveAgent, conversation: LiveConversation, now: Micros
) -> EffectivePermissions:
    """The permissions of the agent now, with its usage. Reads only what is not known. Raises StorageError."""
    for _ in range(RELOADS_MAX):
        touches, found = live.touches, conversation.permissions(server)
        if conversation.stale:  # all of it is reloaded before the model is asked again; calls need only permissions
            found = await _read_permissions(database, server, conversation) or found
        if found.quota.counts_calls:
            found = replace(found, used=await calls_used(database, live, now), frees_at=hour_after(now))
        if live.touches == touches:  # else something changed while this was read
            return found
    raise StorageBusy(
        f"The permissions of {live.claim.agent_id} kept changing while they were read. Send the message again."
    )


async def _read_permissions(
    database: Database, server: Policy, conversation: LiveConversation
) -> EffectivePermissions | None:
    """None when the agent was deleted; its next commit finds that out."""
    known = conversation.loaded
    try:
        loaded = await database.read(lambda tx: loaded_agent.refresh(tx, known))
    except NotFound:
        return None
    return warrant(server, loaded.policy, loaded.agent.permits, loaded.agent.quota)
