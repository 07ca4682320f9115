"""The bound on loaded actors: which are unloaded, which wait, and that none waits for ever."""

import asyncio
from typing import Any

import pytest

from kelpie.actors.dispatcher import ActorCounts
from kelpie.actors.limits import ActorLimits
from kelpie.actors.slots import ActorSlots
from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import NotFound, Overloaded, StorageError
from tests.actors.harness import Handler, Harness, HeldJob, ignore, name, number, seeded


def timers(harness: Harness) -> int:
    pending: list[Any] = harness.loop._timers  # pyright: ignore[reportPrivateUsage]
    return sum(1 for _, _, timer in pending if not timer.cancelled())


@seeded(idle_s=60.0)
async def test_an_idle_key_is_put_away(harness: Harness) -> None:
    await harness.until_hot()
    await asyncio.sleep(59)
    assert harness.unloaded == []
    await asyncio.sleep(2)
    assert harness.unloaded == ["a"]
    assert harness.states()[-2:] == [ActivationState.stopping, ActivationState.unloaded]
    assert harness.seen[-1].reason == "idle"
    assert harness.dispatcher.counts().hot == 0
    assert await harness.dispatcher.submit("a", "default", number) == 2


@seeded(idle_s=60.0)
async def test_use_keeps_a_key_hot(harness: Harness) -> None:
    for _ in range(10):
        await harness.dispatcher.submit("a", "default", ignore)
        await asyncio.sleep(40)
    assert harness.loads == ["a"]


@seeded(idle_s=60.0, drain_s=0.0)
async def test_a_busy_key_is_not_idle(harness: Harness) -> None:
    job = HeldJob("done")
    reply = harness.dispatcher.submit("a", "default", job)
    await asyncio.sleep(600)
    assert harness.unloaded == []
    job.go.set()
    assert await reply == "done"


@seeded(idle_s=60.0, seeds=2)
async def test_one_timer_serves_all_idle_keys_and_many_are_put_away(harness: Harness) -> None:
    for n in range(300):
        await harness.dispatcher.submit(f"k{n}", "default", ignore)
    await harness.until(lambda: harness.dispatcher.counts().idle == 300)
    assert timers(harness) <= 3, "the sweeper's and this test's own"
    await asyncio.sleep(65)
    assert len(harness.unloaded) == 300
    assert timers(harness) <= 1


@seeded(idle_s=60.0, seeds=2)
async def test_a_late_sweep_puts_all_away_in_batches(harness: Harness) -> None:
    for n in range(120):
        await harness.dispatcher.submit(f"k{n}", "default", ignore)
    harness.loop.stalls(lambda: (100.0, 10**9))
    await asyncio.sleep(1)  # in truth 101: all fall due at once
    await asyncio.sleep(1)
    assert len(harness.unloaded) == 120


async def test_a_place_granted_to_one_who_just_went_away_is_given_on() -> None:
    places = ActorSlots(ActorLimits(hot_max=1))
    assert places.take_now("a")
    waiting = asyncio.create_task(places.take("b"))
    await asyncio.sleep(0)
    places.give_back("a")
    assert places.holds("b")
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() and places.taken == 0
    assert places.take_now("c")


@pytest.mark.parametrize("granted_first", [True, False])
async def test_a_place_granted_in_the_moment_in_which_the_wait_is_over_is_given_on(
    monkeypatch: pytest.MonkeyPatch, granted_first: bool
) -> None:
    loop = asyncio.get_running_loop()
    places = ActorSlots(ActorLimits(hot_max=1, place_wait_s=5.0))
    assert places.take_now("a")
    loop.call_later(4.9 if granted_first else 5.1, places.give_back, "a")
    late = asyncio.create_task(places.take("b"))
    await asyncio.sleep(0)
    now = loop.time() + 60
    monkeypatch.setattr(loop, "time", lambda: now)  # both fall due in one turn of the loop
    await asyncio.wait([late])
    assert isinstance(late.exception(), Overloaded)
    assert places.taken == 0 and not places.holds("b") and places.take_now("c")


async def test_a_holder_on_its_way_out_is_counted_once() -> None:
    places = ActorSlots(ActorLimits(hot_max=1))
    assert places.take_now("a")
    for _ in range(2):
        places.leaving("a")
    for _ in range(2):
        places.give_back("a")
    assert (places._leaving, places.taken) == (0, 0)  # pyright: ignore[reportPrivateUsage]


@seeded(seeds=1)
async def test_cold_keys_leave_nothing_behind(harness: Harness) -> None:
    for n in range(200):
        await harness.dispatcher.submit(f"k{n}", "default", ignore)
        await harness.dispatcher.release(f"k{n}")
        harness.errors[f"gone{n}"] = [NotFound("agent", "x")]
        with pytest.raises(NotFound):
            await harness.dispatcher.submit(f"gone{n}", "default", ignore)
        assert harness.dispatcher.status(f"cold{n}").state is ActivationState.unloaded
    assert harness.dispatcher._actors == {}  # pyright: ignore[reportPrivateUsage]
    assert harness.dispatcher.counts() == ActorCounts(hot=0, idle=0, pending=0, resting=0)
    await asyncio.sleep(700)
    assert timers(harness) == 0


@seeded(hot_max=2)
async def test_the_least_recently_used_idle_key_makes_room(harness: Harness) -> None:
    await harness.until_hot("a")
    await harness.until_hot("b")
    await harness.until_hot("a")
    await harness.dispatcher.submit("c", "default", ignore)
    assert harness.unloaded == ["b"]
    assert "evicted" in next(t.reason for t in harness.seen if t.after is ActivationState.stopping)
    assert harness.dispatcher.handler("a") is not None


@seeded(hot_bytes_max=100)
async def test_the_least_recently_used_idle_keys_go_when_all_have_too_many_bytes(harness: Harness) -> None:
    harness.sizes |= {"a": 40, "b": 40, "c": 40, "d": 10}
    for key in ("a", "b", "a", "d"):
        await harness.until_hot(key)
    assert harness.unloaded == [] and harness.dispatcher.counts().hot_bytes == 90
    await harness.dispatcher.submit("c", "default", ignore)
    await harness.until(lambda: harness.unloaded == ["b"])
    assert "too many bytes" in next(t.reason for t in harness.seen if t.after is ActivationState.stopping)
    assert harness.dispatcher.counts().hot_bytes == 90
    await harness.dispatcher.release("a")
    assert harness.dispatcher.counts().hot_bytes == 50


@seeded(hot_bytes_max=100)
async def test_a_key_larger_than_the_bound_stays_until_another_is_used(harness: Harness) -> None:
    harness.sizes |= {"a": 1000, "b": 1}
    await harness.until_hot("a")
    await harness.until_hot("a")
    assert harness.unloaded == [] and harness.loads == ["a"]
    await harness.dispatcher.submit("b", "default", ignore)
    await harness.until(lambda: harness.unloaded == ["a"])
    assert harness.dispatcher.counts().hot_bytes == 1


@seeded(hot_bytes_max=10)
async def test_a_busy_key_is_never_put_away_for_its_bytes(harness: Harness) -> None:
    harness.sizes |= {"a": 1000, "b": 1000, "c": 1000}
    await harness.until_hot("a")
    job = HeldJob("done")
    reply = harness.dispatcher.submit("a", "default", job)
    await job.began.wait()
    await harness.dispatcher.submit("b", "default", ignore)
    await harness.dispatcher.submit("c", "default", ignore)
    await harness.until(lambda: harness.unloaded == ["b"])
    job.go.set()
    assert await reply == "done"


@seeded(hot_max=2)
async def test_a_busy_key_is_never_put_away_for_another(harness: Harness) -> None:
    job = HeldJob("done")
    reply = harness.dispatcher.submit("a", "default", job)
    await job.began.wait()
    for n in range(5):
        await harness.dispatcher.submit(f"k{n}", "default", ignore)
    assert "a" not in harness.unloaded
    job.go.set()
    assert await reply == "done"


@seeded(hot_max=1)
async def test_keys_that_find_no_place_wait_their_turn_in_order(harness: Harness) -> None:
    job = HeldJob()
    first = harness.dispatcher.submit("first", "default", job)
    await job.began.wait()
    waiting: list[Any] = []
    for n in range(4):
        waiting.append(harness.dispatcher.submit(f"k{n}", "default", name))
        await asyncio.sleep(0.1)
    assert harness.loads == ["first"]
    assert harness.dispatcher.counts().pending == 4
    assert harness.dispatcher.status("k0").state is ActivationState.unloaded
    job.go.set()
    await first
    assert await asyncio.gather(*waiting) == ["k0", "k1", "k2", "k3"]
    assert harness.loads == ["first", "k0", "k1", "k2", "k3"]


@seeded(hot_max=1, pending_max=2)
async def test_the_queue_for_a_place_is_bounded(harness: Harness) -> None:
    job = HeldJob()
    first = harness.dispatcher.submit("first", "default", job)
    await job.began.wait()
    waiting = [harness.dispatcher.submit(f"k{n}", "default", name) for n in range(2)]
    with pytest.raises(Overloaded) as refused:
        harness.dispatcher.submit("k2", "default", ignore)
    assert refused.value.retry_after_s > 0
    waiting.append(harness.dispatcher.submit("k1", "default", name))  # it is in the queue already
    job.go.set()
    await first
    assert await asyncio.gather(*waiting) == ["k0", "k1", "k1"]
    assert await harness.dispatcher.submit("k2", "default", name) == "k2"


@seeded(hot_max=2, pending_max=4)
async def test_a_burst_of_cold_keys_takes_the_free_places_first(harness: Harness) -> None:
    replies = [harness.dispatcher.submit(f"k{n}", "default", name) for n in range(6)]
    with pytest.raises(Overloaded):
        harness.dispatcher.submit("k6", "default", name)
    assert await asyncio.gather(*replies) == [f"k{n}" for n in range(6)]


@seeded(pending_max=3)
async def test_keys_that_wait_for_a_retry_count_as_waiting(harness: Harness) -> None:
    replies: list[Any] = []
    for n in range(3):
        harness.errors[f"k{n}"] = [StorageError("away")] * 2
        replies.append(harness.dispatcher.submit(f"k{n}", "default", name))
    await harness.until(lambda: harness.dispatcher.counts().pending == 3)
    with pytest.raises(Overloaded):
        harness.dispatcher.submit("k3", "default", ignore)
    assert await asyncio.gather(*replies) == ["k0", "k1", "k2"]


@seeded(hot_max=1, place_wait_s=5.0)
async def test_actors_that_wait_for_each_other_do_not_deadlock(harness: Harness) -> None:
    async def ask_b(_: Handler) -> str:
        return await harness.dispatcher.submit("b", "default", name)

    with pytest.raises(Overloaded, match="slots for active agents are busy"):
        await harness.dispatcher.submit("a", "default", ask_b)
    assert harness.dispatcher.status("b").state is ActivationState.unloaded
    assert await harness.dispatcher.submit("b", "default", name) == "b"


@seeded(hot_max=1)
async def test_a_job_for_a_key_that_is_being_evicted_runs_on_its_next_activation(harness: Harness) -> None:
    await harness.until_hot("a")
    harness.unload_gate["a"] = asyncio.Event()
    other = harness.dispatcher.submit("b", "default", name)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.stopping)
    again = harness.dispatcher.submit("a", "default", number)
    harness.unload_gate["a"].set()
    assert await other == "b"
    assert await again == 3
    assert harness.loads == ["a", "b", "a"]


@seeded(hot_max=1, deactivate_s=2.0)
async def test_an_eviction_that_hangs_frees_its_place_in_the_end(harness: Harness) -> None:
    await harness.until_hot("a")
    harness.unload_gate["a"] = asyncio.Event()
    assert await harness.dispatcher.submit("b", "default", name) == "b"


@seeded(hot_max=3, seeds=12)
async def test_many_keys_through_few_places(harness: Harness) -> None:
    async def call(n: int) -> None:
        for _ in range(5):
            assert await harness.dispatcher.submit(f"k{n}", "default", name) == f"k{n}"

    await asyncio.gather(*(asyncio.create_task(call(n)) for n in range(20)))
    assert harness.dispatcher.counts().hot <= 3
