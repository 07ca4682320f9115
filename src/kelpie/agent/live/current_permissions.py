"""What a turn may do at the moment when it is about to do it.

A lane knows what its last commit knew. If somebody has changed something since, it is stale, and what counts for calls
is read anew before they run: a permission that was taken away does not let the next call through.
"""

from dataclasses import replace

from kelpie.agent.definition import loaded_agent
from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.agent.live.spending import metered
from kelpie.core.errors import NotFound, StorageBusy
from kelpie.core.permissions.policies import EffectivePermissions, Policy, warrant
from kelpie.core.permissions.quotas import hour_after
from kelpie.core.time import Micros
from kelpie.world.database import Database

READS_MAX = 8  # should edits keep coming in


async def current(
    database: Database, server: Policy, hot: LiveAgent, lane: LiveConversation, now: Micros
) -> EffectivePermissions:
    """What holds for the agent now, with what it has used. Reads only what is not known. Raises StorageError."""
    for _ in range(READS_MAX):
        touches, found = hot.touches, lane.bounds(server)
        if lane.stale:  # the lane itself catches up before the model is asked again, with all that it holds
            found = await _read(database, server, lane) or found
        if found.quota.counts_calls:
            found = replace(found, used=await metered(database, hot, now), frees_at=hour_after(now))
        if hot.touches == touches:  # else somebody has changed something while this was read
            return found
    raise StorageBusy(
        f"The permissions of {hot.claim.agent_id} kept changing while they were read. Send the message again."
    )


async def _read(database: Database, server: Policy, lane: LiveConversation) -> EffectivePermissions | None:
    """None when the agent was deleted; its next commit finds that out."""
    known = lane.loaded
    try:
        loaded = await database.read(lambda tx: loaded_agent.refresh(tx, known))
    except NotFound:
        return None
    return warrant(server, loaded.policy, loaded.agent.permits, loaded.agent.quota)
