"""The public interface of the package: finds or creates the actor of a key and gives it the job.

A key without a handler, work or a failure to report has no object here: a million unloaded keys cost nothing. The
dispatcher only holds the map and its bounds; its `Actor` handles everything about one key.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kelpie.actors.actor import Actor
from kelpie.actors.environment import ActorEnvironment
from kelpie.actors.limits import ActorLimits
from kelpie.actors.reply import Reply
from kelpie.actors.shutdown import ShutdownMode
from kelpie.actors.slots import ActorSlots
from kelpie.core.agents.activation_state import ActivationState, StateTransition
from kelpie.core.agents.agent import ActivationStatus
from kelpie.core.errors import Overloaded
from kelpie.world.clock import Clock

H = TypeVar("H")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ActorCounts:
    """Numbers of keys by situation, for people to see."""

    hot: int  # have a handler or are loading one
    idle: int  # loaded without work
    pending: int  # their jobs wait for a place or a retry
    resting: int  # failed or stopped, without work
    hot_bytes: int = 0  # of the handlers, as they were when they last fell idle


class Dispatcher(Generic[H]):
    def __init__(
        self,
        *,
        activate: Callable[[str], Awaitable[H]],
        deactivate: Callable[[H], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
        limits: ActorLimits,
        observe: Callable[[StateTransition], None],
        size: Callable[[H], int] = lambda _: 0,
    ) -> None:
        self._limits = limits
        self._slots = ActorSlots(limits)
        self._environment = ActorEnvironment(activate, deactivate, clock, rng, limits, observe, self._slots, size)
        self._actors: dict[str, Actor[H]] = {}
        self._resting: dict[str, None] = {}  # oldest first
        self._closing = False

    def submit(self, key: str, lane: str, job: Callable[[H], Awaitable[T]], token: object = None) -> Reply[T]:
        """Accepts a job at once; the reply is a future of its result and may be dropped, the job runs all the same.

        Raises MailboxFull, AgentStopped while the key is being stopped, and Overloaded when too many keys wait or the
        dispatcher is closing. The reply may also fail with what `activate` refused, or ActivationFailed.
        """
        if self._closing:
            raise Overloaded(
                "agents_stopping",
                "The server is shutting down. Send it again when the server is back.",
                self._limits.retry_after_s,
            )
        actor = self._actors.get(key)
        if actor is None or key in self._resting:
            if self.counts().pending >= self._limits.pending_max:
                raise Overloaded(
                    "agents_waiting_full",
                    "Too many agents are waiting to be loaded. Try again later.",
                    self._limits.retry_after_s,
                )
            self._resting.pop(key, None)
            actor = actor or self._new(key)
        return actor.accept(lane, job, token)

    def kept_by(self, key: str, lane: str) -> list[object]:
        """The tokens of the running and waiting jobs of a lane, in order: without any the lane is free."""
        actor = self._actors.get(key)
        return actor.kept_by(lane) if actor else []

    def handler(self, key: str) -> H | None:
        """The live handler of a loaded key. For use before the next await: after it the handler may be unloaded."""
        actor = self._actors.get(key)
        return actor.activation.handler if actor and actor.activation else None

    def notify(self, key: str, note: Callable[[H], None]) -> bool:
        """Calls `note` with the handler: now if it is live, else, if it is being loaded, before its first job.

        So a change stored while the handler was being read is not missed. False means that the key is not loaded.
        """
        actor = self._actors.get(key)
        return actor is not None and actor.notify(note)

    def notify_all(self, note: Callable[[H], None]) -> None:
        """Calls `note` with every handler that is live or being loaded, as `notify` does."""
        for actor in self._actors.values():
            actor.notify(note)

    def drop(self, key: str, error: BaseException) -> None:
        """Declares the handler of a key broken: it is unloaded, then loaded again with backoff when next used."""
        actor = self._actors.get(key)
        if actor is not None:
            actor.drop(error)

    def status(self, key: str) -> ActivationStatus:
        """The state of the key's activation."""
        actor = self._actors.get(key)
        return actor.condition.status() if actor else ActivationStatus(ActivationState.unloaded)

    def counts(self) -> ActorCounts:
        """Numbers of keys in memory, by reason."""
        hot, resting = self._slots.taken, len(self._resting)
        return ActorCounts(hot, self._slots.idle, len(self._actors) - hot - resting, resting, self._slots.bytes)

    async def stop(self, key: str, reason: str) -> ActivationStatus:
        """Ends a key's activation: running jobs may finish within `drain_s`, waiting ones fail with AgentStopped."""
        actor = self._actors.get(key)
        if actor is None:
            actor = self._new(key)
            actor.condition.move(ActivationState.stopped, reason)
            self._settled(actor)
        elif actor.condition.state is not ActivationState.stopped:
            await self._end(actor, ShutdownMode.stop, reason)
        return self.status(key)

    async def release(self, key: str, reason: str = "released") -> None:
        """Unloads a key: running jobs may finish within `drain_s`; waiting ones are kept and load it again."""
        actor = self._actors.get(key)
        if actor is not None and actor.condition.state not in (ActivationState.unloaded, ActivationState.stopped):
            await self._end(actor, ShutdownMode.release, reason)

    async def close(self, drain_s: float) -> None:
        """Ends everything: waiting jobs fail with Overloaded, running ones get `drain_s`, handlers are unloaded."""
        self._closing = True
        self._slots.close()
        for key in list(self._resting):
            self._forget(key, "closing")
        enders = [actor.end(ShutdownMode.close, "closing", drain_s) for actor in self._actors.values()]
        cutter = asyncio.get_running_loop().call_later(drain_s, self._cut)  # for those that were ending before
        try:
            if enders:
                await asyncio.wait(enders)
        finally:
            cutter.cancel()

    async def _end(self, actor: Actor[H], wish: ShutdownMode, reason: str) -> None:
        self._resting.pop(actor.key, None)
        await asyncio.shield(actor.end(wish, reason, self._limits.drain_s))  # goes on if the caller does not

    def _cut(self) -> None:
        for actor in self._actors.values():
            actor.cut()

    def _new(self, key: str) -> Actor[H]:
        self._actors[key] = actor = Actor(key, self._environment, self._settled)
        return actor

    def _settled(self, actor: Actor[H]) -> None:
        if actor.condition.state not in (ActivationState.failed, ActivationState.stopped):
            del self._actors[actor.key]
            return
        self._resting[actor.key] = None
        if len(self._resting) > self._limits.resting_max:
            self._forget(next(iter(self._resting)), "forgotten")

    def _forget(self, key: str, reason: str) -> None:
        del self._resting[key]
        self._actors.pop(key).condition.move(ActivationState.unloaded, reason)
