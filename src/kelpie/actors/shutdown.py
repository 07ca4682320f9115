"""Modes in which an activation ends, and the errors for the callers of its unfinished jobs."""

from enum import IntEnum

from kelpie.actors.actor_state import ActorState
from kelpie.core.errors import AgentStopped, KelpieError, Overloaded


class ShutdownMode(IntEnum):
    """The mode of a shutdown. A stronger mode overrides a weaker one already at work."""

    none = 0
    reload = 1  # it broke: load it again when that is due
    release = 2  # unload it; jobs that wait bring it back at once
    stop = 3
    close = 4


def cause(wish: ShutdownMode, reason: str, condition: ActorState, retry_after_s: float) -> KelpieError:
    """The reason why a job of an activation that ends this way could not be finished."""
    if wish is ShutdownMode.close:
        return Overloaded(
            "agents_stopping", "The server is shutting down. Send it again when the server is back.", retry_after_s
        )
    if wish is ShutdownMode.stop:
        return AgentStopped(f"{condition.key} was stopped: {reason}. Start it before sending messages.")
    if wish is ShutdownMode.reload:
        return condition.error("failed while this was running")
    return Overloaded("agent_unloading", f"{condition.key} is being unloaded: {reason}", retry_after_s)
