"""A dispatcher with handlers that can be made to wait, fail and lie, on the simulation's loop and its virtual time.

Every test runs under several seeds, each with its own order of callbacks, and what must always hold is checked always.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from kelpie.actors.dispatcher import Dispatcher
from kelpie.actors.limits import ActorLimits
from kelpie.core.agents.activation_state import ActivationState, StateTransition
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.simulation import simulate

SEEDS = 6


class Handler:
    """The object that each actor holds. `alive` until it is unloaded."""

    def __init__(self, key: str, number: int) -> None:
        self.key = key
        self.number = number
        self.alive = True
        self.notes: list[str] = []


class VirtualClock:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now(self) -> Micros:
        return int(self._loop.time() * MICROS_PER_SECOND)

    def monotonic_ns(self) -> int:
        return int(self._loop.time() * 1e9)


class Harness:
    def __init__(self, loop: SimLoop, limits: ActorLimits) -> None:
        self.loop = loop
        self.limits = limits
        self.seen: list[StateTransition] = []
        self.loads: list[str] = []  # keys whose load began
        self.load_times: list[float] = []
        self.unloaded: list[str] = []
        self.errors: dict[str, list[BaseException]] = {}  # what the next loads of a key raise
        self.load_gate: dict[str, asyncio.Event] = {}  # a load of the key waits for this
        self.unload_gate: dict[str, asyncio.Event] = {}
        self.before_load: Callable[[str], Awaitable[None]] | None = None
        self.before_unload: Callable[[str], Awaitable[None]] | None = None
        self.live: dict[str, Handler] = {}
        self.loading: dict[str, None] = {}
        self.wrong: list[str] = []
        self.sizes: dict[str, int] = {}  # of handlers, in bytes
        self.dispatcher = Dispatcher[Handler](
            activate=self._activate,
            deactivate=self._deactivate,
            clock=VirtualClock(loop),
            rng=random.Random(loop.seed),
            limits=limits,
            observe=self._observe,
            size=lambda handler: self.sizes.get(handler.key, 0),
        )

    async def _activate(self, key: str) -> Handler:
        self.must(key not in self.live and key not in self.loading, f"{key} was loaded twice at a time")
        self.loads.append(key)
        self.load_times.append(self.loop.time())
        self.loading[key] = None
        self.must(len(self.live) + len(self.loading) <= self.limits.hot_max, "too many are hot")
        try:
            if key in self.load_gate:
                await self.load_gate[key].wait()
            if self.before_load:
                await self.before_load(key)
            if self.errors.get(key):
                raise self.errors[key].pop(0)
        finally:
            del self.loading[key]
        self.live[key] = handler = Handler(key, len(self.loads))
        return handler

    async def _deactivate(self, handler: Handler) -> None:
        self.must(self.live[handler.key] is handler and handler.alive, f"{handler.key} was unloaded twice")
        handler.alive = False
        try:
            if handler.key in self.unload_gate:
                await self.unload_gate[handler.key].wait()
            if self.before_unload:
                await self.before_unload(handler.key)
        finally:
            del self.live[handler.key]
            self.unloaded.append(handler.key)

    def _observe(self, transition: StateTransition) -> None:
        last = next((t.after for t in reversed(self.seen) if t.key == transition.key), ActivationState.unloaded)
        self.must(transition.before is last, f"{last}, then {transition}")
        self.seen.append(transition)

    def must(self, true: bool, otherwise: str) -> None:
        """Notes a broken rule; raised from within the dispatcher it would pass for a failure that is allowed."""
        if not true:
            self.wrong.append(otherwise)

    def states(self, key: str = "a") -> list[ActivationState]:
        """The states the key has gone through, unloaded left out at the beginning."""
        return [t.after for t in self.seen if t.key == key]

    async def until(self, true: Callable[[], bool], within_s: float = 60.0) -> None:
        """Waits for something to become true, in virtual time."""
        async with asyncio.timeout(within_s):
            while not true():  # noqa: ASYNC110 - the time is virtual, and many different things are waited for
                await asyncio.sleep(0.001)

    async def until_hot(self, key: str = "a") -> Handler:
        await self.dispatcher.submit(key, "warm-up", ignore)
        await self.until(lambda: self.dispatcher.status(key).state is ActivationState.loaded)
        handler = self.dispatcher.handler(key)
        assert handler is not None
        return handler


class HeldJob:
    """A job that sets `began` when it begins, and ends when `go` is set."""

    def __init__(self, result: Any = None, error: BaseException | None = None) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = False
        self.handler: Handler | None = None
        self._result = result
        self._error = error

    async def __call__(self, handler: Handler) -> Any:
        assert handler.alive
        self.handler = handler
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self._error is not None:
            raise self._error
        return self._result


async def ignore(_: Handler) -> None:
    return


async def name(handler: Handler) -> str:
    return handler.key


async def number(handler: Handler) -> int:
    """The number of the load that made the handler."""
    return handler.number


def raising(error: BaseException) -> Callable[[Handler], Awaitable[None]]:
    async def work(_: Handler) -> None:
        raise error

    return work


def seeded(seeds: int = SEEDS, **bounds: Any) -> Callable[[Callable[[Harness], Coroutine[Any, Any, None]]], Any]:
    """Makes a test of a coroutine function: it gets a harness, and is run once for each seed."""

    def decorate(body: Callable[[Harness], Coroutine[Any, Any, None]]) -> Any:
        async def main(loop: SimLoop) -> None:
            harness = Harness(loop, ActorLimits(**bounds))
            await body(harness)
            await harness.dispatcher.close(0)
            counts = harness.dispatcher.counts()
            assert (counts.hot, counts.pending, counts.resting) == (0, 0, 0)
            assert not harness.live, "a handler was not unloaded"
            assert harness.wrong == []

        def test(seed: int) -> None:
            loop = SimLoop(seed)
            simulate(main, loop).get()
            assert loop.unhandled == []

        test.__name__, test.__doc__, test.__module__ = body.__name__, body.__doc__, body.__module__
        return pytest.mark.parametrize("seed", range(seeds))(test)

    return decorate
