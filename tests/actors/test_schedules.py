"""Everything at once, in random orders: what must always hold, holds, and every accepted job is answered."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kelpie.actors.dispatcher import ActorCounts, Dispatcher
from kelpie.actors.limits import ActorLimits
from kelpie.actors.mailbox import Job, Mailbox
from kelpie.core.agents.activation_state import StateTransition
from kelpie.core.errors import AgentStopped, Fenced, KelpieError, MailboxFull, NotFound, Overloaded, StorageError
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.simulation import simulate
from kelpie.world.clock import SystemClock
from tests.actors.harness import Handler, Harness, name

KEYS = ("a", "b", "c", "d", "e")
LANES = ("one", "two")
LIMITS = ActorLimits(
    mailbox_size=4,
    lanes_max=2,
    hot_max=2,
    pending_max=4,
    resting_max=2,
    idle_s=3.0,
    place_wait_s=5.0,
    activate_s=2.0,
    deactivate_s=2.0,
    drain_s=1.0,
    cancel_s=1.0,
    backoff_max_s=2.0,
    attempts_max=2,
)


class Storm:
    """Clients and operators that do what comes to their mind."""

    def __init__(self, loop: SimLoop) -> None:
        self.rng = loop.rng("storm")
        self.harness = Harness(loop, LIMITS)
        self.harness.before_load = self._load
        self.harness.before_unload = self._put_away
        self.accepted: dict[int, asyncio.Future[Any]] = {}
        self.ran: dict[int, None] = {}
        self.lane_of: dict[int, tuple[str, str]] = {}
        self.began: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.running: dict[tuple[str, str], int] = {}

    async def _load(self, key: str) -> None:
        await asyncio.sleep(self.rng.choice((0, 0, 0.1, 1.0, 5.0)))
        chance = self.rng.random()
        if chance < 0.15:
            raise StorageError("the disk is away")
        if chance < 0.2:
            raise self.rng.choice((NotFound("agent", key), AgentStopped("stopped")))

    async def _put_away(self, key: str) -> None:
        await asyncio.sleep(self.rng.choice((0, 0, 0.1, 1.0, 5.0)))
        if self.rng.random() < 0.1:
            raise StorageError(f"{key} could not be unloaded")

    def job(self, n: int, key: str, lane: str) -> Callable[[Handler], Awaitable[int]]:
        duration_s = self.rng.choice((0, 0, 0.01, 0.5, 3.0))
        error = self.rng.choice((None,) * 12 + (ValueError("x"), StorageError("away"), Fenced("gone")))

        async def work(handler: Handler) -> int:
            assert handler.alive and handler.key == key and n not in self.ran
            assert (key, lane) not in self.running, "two jobs at once in a lane"
            self.ran[n] = None
            self.running[key, lane] = n
            self.began[key, lane].append(n)
            try:
                await asyncio.sleep(duration_s)
                assert handler.alive, "unloaded under a running job"
                if error is not None:
                    raise error
                return n
            finally:
                del self.running[key, lane]

        return work

    async def client(self, base: int) -> None:
        for n in range(base, base + 12):
            await asyncio.sleep(self.rng.choice((0, 0, 0.1, 1.0)))
            key, lane = self.rng.choice(KEYS), self.rng.choice(LANES)
            try:
                reply = self.harness.dispatcher.submit(key, lane, self.job(n, key, lane))
            except (Overloaded, AgentStopped):
                continue
            self.accepted[n] = reply
            self.lane_of[n] = (key, lane)
            if self.rng.random() < 0.5:
                patience_s = self.rng.choice((0.1, 1.0, 60.0))
                await asyncio.wait([reply], timeout=patience_s)

    async def operator(self) -> None:
        dispatcher = self.harness.dispatcher
        for _ in range(15):
            await asyncio.sleep(self.rng.choice((0, 0.1, 0.5, 2.0)))
            key = self.rng.choice(KEYS)
            what = self.rng.randrange(4)
            if what == 0:
                await dispatcher.stop(key, "by the operator")
            elif what == 1:
                await dispatcher.release(key)
            elif what == 2:
                dispatcher.drop(key, self.rng.choice((RuntimeError("lease lost"), Fenced("gone"))))
            else:
                dispatcher.notify(key, lambda handler: handler.notes.append("edited"))

    async def rage(self, loop: SimLoop) -> None:
        tasks = [asyncio.create_task(self.client(base)) for base in (0, 100, 200, 300)]
        tasks += [asyncio.create_task(self.operator()) for _ in range(2)]
        if self.rng.random() < 0.5:
            await asyncio.wait(tasks)
            await asyncio.sleep(self.rng.choice((0, 2.0, 60.0)))
        else:
            await asyncio.sleep(self.rng.choice((0.1, 1.0, 4.0)))
        await self.harness.dispatcher.close(self.rng.choice((0, 0.5, 5.0)))
        counts = self.harness.dispatcher.counts()
        assert (counts.hot, counts.idle, counts.pending) == (0, 0, 0)
        await asyncio.wait(tasks)
        self.check()

    def check(self) -> None:
        assert self.harness.wrong == []
        assert not self.harness.live and not self.harness.loading and not self.running
        for n, reply in self.accepted.items():
            assert reply.done(), f"job {n} was accepted and never answered"
            error = reply.exception()
            if error is None:
                assert reply.result() == n and n in self.ran
            else:
                assert isinstance(error, (KelpieError, ValueError)), error
        for lane, began in self.began.items():
            assert began == sorted(began, key=list(self.accepted).index), f"{lane} ran out of order"


@pytest.mark.parametrize("seed", range(60))
def test_a_storm(seed: int) -> None:
    loop = SimLoop(seed)
    simulate(lambda loop: Storm(loop).rage(loop), loop).get()
    assert loop.unhandled == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(60, 3000))
def test_many_storms(seed: int) -> None:
    test_a_storm(seed)


def test_a_storm_is_the_same_every_time() -> None:
    def once() -> str:
        return simulate(lambda loop: Storm(loop).rage(loop), SimLoop(7)).trace_hash

    assert once() == once()


async def test_the_room_works_on_a_real_loop() -> None:
    seen: list[StateTransition] = []

    async def activate(key: str) -> Handler:
        return Handler(key, 1)

    async def deactivate(handler: Handler) -> None:
        handler.alive = False

    dispatcher = Dispatcher[Handler](
        activate=activate,
        deactivate=deactivate,
        clock=SystemClock(),
        rng=random.Random(1),
        limits=ActorLimits(hot_max=5),
        observe=seen.append,
    )
    replies = [dispatcher.submit(f"k{n % 10}", LANES[n % 2], name) for n in range(40)]
    assert await asyncio.gather(*replies) == [f"k{n % 10}" for n in range(40)]
    await dispatcher.close(1)
    assert dispatcher.counts() == ActorCounts(0, 0, 0, 0)
    assert seen


@given(st.lists(st.tuples(st.sampled_from(("put", "take")), st.sampled_from("xyz"), st.sets(st.sampled_from("xyz")))))
@settings(max_examples=200, deadline=None)
def test_a_mailbox_keeps_the_order_of_each_lane_and_its_bound(steps: list[tuple[str, str, set[str]]]) -> None:
    mailbox: Mailbox[None] = Mailbox()
    model: dict[str, list[Job[None]]] = {lane: [] for lane in "xyz"}
    for step, lane, busy in steps:
        held = sum(map(len, model.values()))
        assert mailbox.waiting == held
        if step == "put":
            job: Job[None] = Job(lane, None, None, None)  # pyright: ignore[reportArgumentType]
            if held == 5:
                with pytest.raises(MailboxFull):
                    mailbox.put(job, 5, 1.0)
                continue
            mailbox.put(job, 5, 1.0)
            model[lane].append(job)
        else:
            taken = mailbox.take(busy)
            free = [lane for lane in model if model[lane] and lane not in busy]
            assert (taken is not None) == bool(free)
            if taken is not None:
                assert taken.lane in free
                assert model[taken.lane].pop(0) is taken
    left = mailbox.clear()
    assert sorted(map(id, left)) == sorted(id(job) for jobs in model.values() for job in jobs)
    assert mailbox.waiting == 0 and mailbox.take(()) is None
