"""What is to become of an activation that ends, and what the callers of its unfinished jobs are told."""

from enum import IntEnum

from kelpie.actors.actor_state import Condition
from kelpie.core.errors import AgentStopped, KelpieError, Overloaded


class Wish(IntEnum):
    """A stronger wish overrides a weaker one already at work."""

    none = 0
    reload = 1  # it broke: load it again when that is due
    release = 2  # unload it; jobs that wait bring it back at once
    stop = 3
    close = 4


def cause(wish: Wish, reason: str, condition: Condition, retry_after_s: float) -> KelpieError:
    """Why a job of an activation that ends this way could not be finished."""
    if wish is Wish.close:
        return Overloaded("the server is shutting down; send again when it is back", retry_after_s)
    if wish is Wish.stop:
        return AgentStopped(f"{condition.key} was stopped: {reason}. Start it before sending messages.")
    if wish is Wish.reload:
        return condition.told("failed while this was running")
    return Overloaded(f"{condition.key} is being unloaded: {reason}", retry_after_s)
