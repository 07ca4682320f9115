"""The bound on hot actors: who is put away, who waits, and that nobody waits for ever."""

import asyncio
from typing import Any

import pytest

from kelpie.actors.dispatcher import ActorCounts
from kelpie.actors.limits import ActorLimits
from kelpie.actors.slots import ActorSlots
from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import NotFound, Overloaded, StorageError
from tests.actors.theatre import Handler, Play, Theatre, ignore, name, number, play


def timers(theatre: Theatre) -> int:
    pending: list[Any] = theatre.loop._timers  # pyright: ignore[reportPrivateUsage]
    return sum(1 for _, _, timer in pending if not timer.cancelled())


@play(idle_s=60.0)
async def test_an_idle_key_is_put_away(theatre: Theatre) -> None:
    await theatre.until_hot()
    await asyncio.sleep(59)
    assert theatre.put_away == []
    await asyncio.sleep(2)
    assert theatre.put_away == ["a"]
    assert theatre.states()[-2:] == [ActivationState.stopping, ActivationState.unloaded]
    assert theatre.seen[-1].reason == "idle"
    assert theatre.dispatcher.counts().hot == 0
    assert await theatre.dispatcher.submit("a", "default", number) == 2


@play(idle_s=60.0)
async def test_use_keeps_a_key_hot(theatre: Theatre) -> None:
    for _ in range(10):
        await theatre.dispatcher.submit("a", "default", ignore)
        await asyncio.sleep(40)
    assert theatre.loads == ["a"]


@play(idle_s=60.0, drain_s=0.0)
async def test_a_busy_key_is_not_idle(theatre: Theatre) -> None:
    job = Play("done")
    reply = theatre.dispatcher.submit("a", "default", job)
    await asyncio.sleep(600)
    assert theatre.put_away == []
    job.go.set()
    assert await reply == "done"


@play(idle_s=60.0, seeds=2)
async def test_one_timer_serves_all_idle_keys_and_many_are_put_away(theatre: Theatre) -> None:
    for n in range(300):
        await theatre.dispatcher.submit(f"k{n}", "default", ignore)
    await theatre.until(lambda: theatre.dispatcher.counts().idle == 300)
    assert timers(theatre) <= 3, "the sweeper's and this test's own"
    await asyncio.sleep(65)
    assert len(theatre.put_away) == 300
    assert timers(theatre) <= 1


@play(idle_s=60.0, seeds=2)
async def test_a_late_sweep_puts_all_away_in_batches(theatre: Theatre) -> None:
    for n in range(120):
        await theatre.dispatcher.submit(f"k{n}", "default", ignore)
    theatre.loop.stalls(lambda: (100.0, 10**9))
    await asyncio.sleep(1)  # in truth 101: all fall due at once
    await asyncio.sleep(1)
    assert len(theatre.put_away) == 120


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


@play(seeds=1)
async def test_cold_keys_leave_nothing_behind(theatre: Theatre) -> None:
    for n in range(200):
        await theatre.dispatcher.submit(f"k{n}", "default", ignore)
        await theatre.dispatcher.release(f"k{n}")
        theatre.errors[f"gone{n}"] = [NotFound("agent", "x")]
        with pytest.raises(NotFound):
            await theatre.dispatcher.submit(f"gone{n}", "default", ignore)
        assert theatre.dispatcher.status(f"cold{n}").state is ActivationState.unloaded
    assert theatre.dispatcher._actors == {}  # pyright: ignore[reportPrivateUsage]
    assert theatre.dispatcher.counts() == ActorCounts(hot=0, idle=0, pending=0, resting=0)
    await asyncio.sleep(700)
    assert timers(theatre) == 0


@play(hot_max=2)
async def test_the_least_recently_used_idle_key_makes_room(theatre: Theatre) -> None:
    await theatre.until_hot("a")
    await theatre.until_hot("b")
    await theatre.until_hot("a")
    await theatre.dispatcher.submit("c", "default", ignore)
    assert theatre.put_away == ["b"]
    assert "evicted" in next(t.reason for t in theatre.seen if t.after is ActivationState.stopping)
    assert theatre.dispatcher.handler("a") is not None


@play(hot_max=2)
async def test_a_busy_key_is_never_put_away_for_another(theatre: Theatre) -> None:
    job = Play("done")
    reply = theatre.dispatcher.submit("a", "default", job)
    await job.began.wait()
    for n in range(5):
        await theatre.dispatcher.submit(f"k{n}", "default", ignore)
    assert "a" not in theatre.put_away
    job.go.set()
    assert await reply == "done"


@play(hot_max=1)
async def test_keys_that_find_no_place_wait_their_turn_in_order(theatre: Theatre) -> None:
    job = Play()
    first = theatre.dispatcher.submit("first", "default", job)
    await job.began.wait()
    waiting: list[Any] = []
    for n in range(4):
        waiting.append(theatre.dispatcher.submit(f"k{n}", "default", name))
        await asyncio.sleep(0.1)
    assert theatre.loads == ["first"]
    assert theatre.dispatcher.counts().pending == 4
    assert theatre.dispatcher.status("k0").state is ActivationState.unloaded
    job.go.set()
    await first
    assert await asyncio.gather(*waiting) == ["k0", "k1", "k2", "k3"]
    assert theatre.loads == ["first", "k0", "k1", "k2", "k3"]


@play(hot_max=1, pending_max=2)
async def test_the_queue_for_a_place_is_bounded(theatre: Theatre) -> None:
    job = Play()
    first = theatre.dispatcher.submit("first", "default", job)
    await job.began.wait()
    waiting = [theatre.dispatcher.submit(f"k{n}", "default", name) for n in range(2)]
    with pytest.raises(Overloaded) as refused:
        theatre.dispatcher.submit("k2", "default", ignore)
    assert refused.value.retry_after_s > 0
    waiting.append(theatre.dispatcher.submit("k1", "default", name))  # it is in the queue already
    job.go.set()
    await first
    assert await asyncio.gather(*waiting) == ["k0", "k1", "k1"]
    assert await theatre.dispatcher.submit("k2", "default", name) == "k2"


@play(hot_max=2, pending_max=4)
async def test_a_burst_of_cold_keys_takes_the_free_places_first(theatre: Theatre) -> None:
    replies = [theatre.dispatcher.submit(f"k{n}", "default", name) for n in range(6)]
    with pytest.raises(Overloaded):
        theatre.dispatcher.submit("k6", "default", name)
    assert await asyncio.gather(*replies) == [f"k{n}" for n in range(6)]


@play(pending_max=3)
async def test_keys_that_wait_for_a_retry_count_as_waiting(theatre: Theatre) -> None:
    replies: list[Any] = []
    for n in range(3):
        theatre.errors[f"k{n}"] = [StorageError("away")] * 2
        replies.append(theatre.dispatcher.submit(f"k{n}", "default", name))
    await theatre.until(lambda: theatre.dispatcher.counts().pending == 3)
    with pytest.raises(Overloaded):
        theatre.dispatcher.submit("k3", "default", ignore)
    assert await asyncio.gather(*replies) == ["k0", "k1", "k2"]


@play(hot_max=1, place_wait_s=5.0)
async def test_actors_that_wait_for_each_other_do_not_deadlock(theatre: Theatre) -> None:
    async def ask_b(_: Handler) -> str:
        return await theatre.dispatcher.submit("b", "default", name)

    with pytest.raises(Overloaded, match="slots"):
        await theatre.dispatcher.submit("a", "default", ask_b)
    assert theatre.dispatcher.status("b").state is ActivationState.unloaded
    assert await theatre.dispatcher.submit("b", "default", name) == "b"


@play(hot_max=1)
async def test_a_job_for_a_key_that_is_being_evicted_runs_on_its_next_activation(theatre: Theatre) -> None:
    await theatre.until_hot("a")
    theatre.put_away_gate["a"] = asyncio.Event()
    other = theatre.dispatcher.submit("b", "default", name)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.stopping)
    again = theatre.dispatcher.submit("a", "default", number)
    theatre.put_away_gate["a"].set()
    assert await other == "b"
    assert await again == 3
    assert theatre.loads == ["a", "b", "a"]


@play(hot_max=1, deactivate_s=2.0)
async def test_an_eviction_that_hangs_frees_its_place_in_the_end(theatre: Theatre) -> None:
    await theatre.until_hot("a")
    theatre.put_away_gate["a"] = asyncio.Event()
    assert await theatre.dispatcher.submit("b", "default", name) == "b"


@play(hot_max=3, seeds=12)
async def test_many_keys_through_few_places(theatre: Theatre) -> None:
    async def call(n: int) -> None:
        for _ in range(5):
            assert await theatre.dispatcher.submit(f"k{n}", "default", name) == f"k{n}"

    await asyncio.gather(*(asyncio.create_task(call(n)) for n in range(20)))
    assert theatre.dispatcher.counts().hot <= 3
