"""What a turn may do at the moment when it is about to do it.

A lane knows what its last commit knew. If somebody has changed something since, it is stale, and what counts for calls
is read anew before they run: a permission that was taken away does not let the next call through.
"""

from dataclasses import replace

from kelpie.agent import state
from kelpie.agent.lanes import Hot, Lane
from kelpie.agent.ledger import metered
from kelpie.core.errors import NotFound
from kelpie.core.policies import Policy, Warrant, warrant
from kelpie.core.quotas import hour_after
from kelpie.core.time import Micros
from kelpie.world.database import Database


async def current(database: Database, server: Policy, hot: Hot, lane: Lane, now: Micros) -> Warrant:
    """What holds for the agent now, with what it has used. Reads only what is not known. Raises StorageError."""
    found = lane.bounds(server)
    if lane.stale:  # the lane itself catches up before the model is asked again, with all that it holds
        known = lane.loaded
        try:
            loaded = await database.read(lambda tx: state.refresh(tx, known))
        except NotFound:  # the agent was deleted; its next commit finds that out
            return found
        found = warrant(server, loaded.policy, loaded.agent.permits, loaded.agent.quota)
    if not found.quota.counts_calls:
        return found
    return replace(found, used=await metered(database, hot, now), frees_at=hour_after(now))
