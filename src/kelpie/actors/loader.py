"""Loading of the handler of a key: a slot, then tries with backoff between them. A failed try holds no slot."""

import asyncio
from typing import TypeVar

from kelpie.actors.actor_state import ActorState
from kelpie.actors.environment import ActorEnvironment, LoadFailed
from kelpie.actors.failure import is_lasting
from kelpie.core.agents.activation_state import ActivationState

H = TypeVar("H")


async def load(environment: ActorEnvironment[H], condition: ActorState) -> H:
    """The handler, with the key holding a slot. Any error leaves a slot and a state for the caller to undo.

    Raises ActivationFailed when `attempts_max` tries failed in a row or nothing can be stored, and CallerError when
    there was no slot in time or the key was refused; in the last case the state is still `loading`.
    """
    places, key = environment.places, condition.key
    while True:  # ends at attempts_max
        if not places.holds(key):
            await asyncio.sleep(condition.wait_s())
            await places.take(key)
        condition.move(ActivationState.loading)
        try:
            handler = await environment.load(key)
        except LoadFailed as failed:
            condition.loads_failed += 1
            condition.fail(failed)
            places.give_back(key)
            if condition.loads_failed >= environment.limits.attempts_max or is_lasting(failed):
                raise condition.error("could not be loaded") from failed.__cause__
            continue
        condition.loads_failed = 0
        return handler
