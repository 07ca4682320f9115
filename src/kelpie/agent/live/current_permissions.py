"""Effective permissions at the moment when a turn is about to run calls.

A live conversation has the settings of its last commit. When settings have changed since, it is stale, and permissions
are read anew before calls run: a permission that was taken away does not let the next call through.
"""

from dataclasses import replace

from kelpie.agent.definition import loaded_agent
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.live.spending import calls_used
from kelpie.core.errors import NotFound, StorageBusy
from kelpie.core.permissions.policies import EffectivePermissions, Policy, warrant
from kelpie.core.permissions.quotas import hour_after
from kelpie.core.time import Micros
from kelpie.world.database import Database

READS_MAX = 8  # should edits keep coming in


async def current(
    database: Database, server: Policy, live: LiveAgent, conversation: LiveConversation, now: Micros
) -> EffectivePermissions:
    """The permissions of the agent now, with its usage. Reads only what is not known. Raises StorageError."""
    for _ in range(READS_MAX):
        touches, found = live.touches, conversation.permissions(server)
        if conversation.stale:  # all of it is reloaded before the model is asked again; calls need only permissions
            found = await _read(database, server, conversation) or found
        if found.quota.counts_calls:
            found = replace(found, used=await calls_used(database, live, now), frees_at=hour_after(now))
        if live.touches == touches:  # else something changed while this was read
            return found
    raise StorageBusy(
        f"The permissions of {live.claim.agent_id} kept changing while they were read. Send the message again."
    )


async def _read(database: Database, server: Policy, conversation: LiveConversation) -> EffectivePermissions | None:
    """None when the agent was deleted; its next commit finds that out."""
    known = conversation.loaded
    try:
        loaded = await database.read(lambda tx: loaded_agent.refresh(tx, known))
    except NotFound:
        return None
    return warrant(server, loaded.policy, loaded.agent.permits, loaded.agent.quota)
