"""Shared parts of all actors of one dispatcher: loading and unloading of handlers, the bounds, the slots, the clock."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from kelpie.actors.failure import text_of
from kelpie.actors.limits import ActorLimits
from kelpie.actors.slots import ActorSlots
from kelpie.core.agents.activation_state import StateTransition
from kelpie.core.errors import CallerError, KelpieError
from kelpie.observe import logs
from kelpie.world.clock import Clock

H = TypeVar("H")
log = logs.get("actors")


class LoadFailed(KelpieError):
    """A handler could not be loaded this time; the cause is the error that `activate` raised."""


@dataclass(frozen=True, slots=True)
class ActorEnvironment(Generic[H]):
    activate: Callable[[str], Awaitable[H]]
    deactivate: Callable[[H], Awaitable[None]]
    clock: Clock
    rng: random.Random
    limits: ActorLimits
    observe: Callable[[StateTransition], None]
    places: ActorSlots
    size: Callable[[H], int]  # of a handler in memory, in bytes
    numbers: Iterator[int] = field(default_factory=count)  # for replies, so that their order in a set is fixed

    async def load(self, key: str) -> H:
        """Tries once. Raises CallerError when the key is refused, LoadFailed when loading failed."""
        limit = asyncio.timeout(self.limits.activate_s)
        try:
            async with limit:
                handler = await self.activate(key)
        except asyncio.CancelledError as error:
            if _cancelled():
                raise
            raise LoadFailed("loading was cancelled from within") from error
        except Exception as error:  # this package knows no handler, and so no list of what loading one may raise
            if _cancelled():
                raise asyncio.CancelledError from error
            if isinstance(error, CallerError):
                raise
            late = isinstance(error, TimeoutError) and limit.expired()
            text = f"loading took longer than {self.limits.activate_s} s" if late else text_of(error)
            raise LoadFailed(text) from error
        if _cancelled():  # it came all the same, too late to be wanted
            await self.unload(key, handler)
            raise asyncio.CancelledError
        return handler

    async def unload(self, key: str, handler: H) -> None:
        """Deactivates a handler. An error is logged: the handler is gone in any case."""
        try:
            async with asyncio.timeout(self.limits.deactivate_s):
                await self.deactivate(handler)
        except asyncio.CancelledError:
            log.error("actor_unload_cancelled", "Unloading an actor was cancelled", key=key)
        except Exception:  # the key must come free, whatever a handler says at its end
            log.exception("actor_unload_failed", "Unloading an actor failed", key=key)


def _cancelled() -> bool:
    """Checks whether this very task was asked to end, as opposed to something in it that happened to be cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
