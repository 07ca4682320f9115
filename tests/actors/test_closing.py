"""Releasing a key, and closing the whole room."""

import asyncio
from typing import Any

import pytest

from kelpie.actors.dispatcher import ActorCounts
from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import Overloaded, StorageError
from tests.actors.theatre import Play, Theatre, ignore, name, number, play

NOTHING = ActorCounts(hot=0, idle=0, pending=0, resting=0)


@play()
async def test_releasing_unloads_and_keeps_what_waits(theatre: Theatre) -> None:
    job = Play("done")
    running = theatre.dispatcher.submit("a", "default", job)
    await job.began.wait()
    waiting = theatre.dispatcher.submit("a", "default", number)
    releasing = asyncio.create_task(theatre.dispatcher.release("a"))
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.stopping)
    job.go.set()
    assert await running == "done"
    await releasing
    assert theatre.put_away == ["a"]
    assert await waiting == 2


@play()
async def test_releasing_a_cold_key_does_nothing(theatre: Theatre) -> None:
    await theatre.dispatcher.release("a")
    assert theatre.seen == []


@play(attempts_max=1)
async def test_releasing_a_failed_key_forgets_the_failure(theatre: Theatre) -> None:
    theatre.errors["a"] = [StorageError("away")]
    with pytest.raises(Exception, match="away"):
        await theatre.dispatcher.submit("a", "default", ignore)
    await theatre.dispatcher.release("a")
    assert theatre.dispatcher.counts() == NOTHING
    asked_at = theatre.loop.time()
    await theatre.dispatcher.submit("a", "default", ignore)
    assert theatre.load_times[1] - asked_at < 0.01


@play()
async def test_closing_puts_every_handler_away(theatre: Theatre) -> None:
    for n in range(10):
        await theatre.dispatcher.submit(f"k{n}", "default", ignore)
    await theatre.dispatcher.close(5)
    assert sorted(theatre.put_away) == sorted(theatre.loads)
    assert theatre.dispatcher.counts() == NOTHING
    await theatre.dispatcher.close(5)


@play()
async def test_closing_gives_running_jobs_time_and_fails_waiting_ones(theatre: Theatre) -> None:
    quick, slow = Play("done"), Play()
    finishing = theatre.dispatcher.submit("a", "default", quick)
    cut = theatre.dispatcher.submit("b", "default", slow)
    await quick.began.wait()
    await slow.began.wait()
    waiting = theatre.dispatcher.submit("a", "default", ignore)
    began_at = theatre.loop.time()
    closing = asyncio.create_task(theatre.dispatcher.close(4))
    with pytest.raises(Overloaded, match="shutting down") as refused:
        await waiting
    assert refused.value.retry_after_s > 0
    quick.go.set()
    assert await finishing == "done"
    with pytest.raises(Overloaded, match="shutting down"):
        await cut
    await closing
    assert slow.cancelled
    assert theatre.loop.time() - began_at == pytest.approx(4, abs=0.1)


@play(hot_max=2, cancel_s=1.0)
async def test_closing_while_keys_load_wait_fail_and_leave(theatre: Theatre) -> None:
    theatre.load_gate["loading"] = asyncio.Event()
    theatre.errors["failing"] = [StorageError("away")] * 9
    replies = [theatre.dispatcher.submit("failing", "default", ignore)]
    await theatre.until(lambda: theatre.dispatcher.status("failing").state is ActivationState.failed)
    await theatre.dispatcher.stop("stopped", "by the operator")
    replies.append(theatre.dispatcher.submit("loading", "default", ignore))
    await theatre.until(lambda: theatre.dispatcher.status("loading").state is ActivationState.loading)
    await theatre.until_hot("leaving")
    theatre.put_away_gate["leaving"] = asyncio.Event()
    replies += [theatre.dispatcher.submit(key, "default", ignore) for key in ("waiting", "waiting too")]
    await theatre.until(lambda: theatre.dispatcher.status("leaving").state is ActivationState.stopping)
    closing = asyncio.create_task(theatre.dispatcher.close(3))
    errors: list[Any] = await asyncio.gather(*replies, return_exceptions=True)
    assert all(isinstance(error, Overloaded) for error in errors)
    theatre.put_away_gate["leaving"].set()
    await closing
    assert theatre.dispatcher.counts() == NOTHING
    assert theatre.loads == ["failing", "loading", "leaving"]


@play(drain_s=100.0)
async def test_closing_hurries_a_stop_that_was_under_way(theatre: Theatre) -> None:
    job = Play()
    running = theatre.dispatcher.submit("a", "default", job)
    await job.began.wait()
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.stopping)
    began_at = theatre.loop.time()
    await theatre.dispatcher.close(2)
    assert theatre.loop.time() - began_at < 3
    with pytest.raises(Overloaded):
        await running
    await stopping


@play(seeds=1)
async def test_nothing_goes_on_after_closing(theatre: Theatre) -> None:
    for key in ("a", "b"):
        await theatre.until_hot(key)
    theatre.dispatcher.drop("a", StorageError("away"))
    await theatre.dispatcher.close(1)
    assert [task.get_name() for task in theatre.loop.held() if task is not asyncio.current_task()] == []
    timers: list[Any] = theatre.loop._timers  # pyright: ignore[reportPrivateUsage]
    assert [timer for _, _, timer in timers if not timer.cancelled()] == []


@play(seeds=2)
async def test_a_bug_in_the_room_costs_jobs_but_not_the_key(theatre: Theatre) -> None:
    actor_of = theatre.dispatcher._actors  # pyright: ignore[reportPrivateUsage]
    theatre.load_gate["a"] = asyncio.Event()
    reply = theatre.dispatcher.submit("a", "default", ignore)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.loading)
    actor_of["a"].condition._life.state = ActivationState.unloaded  # pyright: ignore[reportPrivateUsage]
    theatre.load_gate.pop("a").set()
    with pytest.raises(Exception, match="illegal move"):
        await reply
    assert theatre.dispatcher.counts() == NOTHING
    theatre.live.clear()
    theatre.seen.clear()
    assert await theatre.dispatcher.submit("a", "default", name) == "a"
