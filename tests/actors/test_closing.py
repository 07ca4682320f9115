"""Releasing a key, and closing the whole dispatcher."""

import asyncio
from typing import Any

import pytest

from kelpie.actors.dispatcher import ActorCounts
from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import KelpieError, Overloaded, StorageError
from tests.actors.harness import Handler, Harness, HeldJob, ignore, name, number, seeded

NOTHING = ActorCounts(hot=0, idle=0, pending=0, resting=0)


@seeded()
async def test_releasing_unloads_and_keeps_what_waits(harness: Harness) -> None:
    job = HeldJob("done")
    running = harness.dispatcher.submit("a", "default", job)
    await job.began.wait()
    waiting = harness.dispatcher.submit("a", "default", number)
    releasing = asyncio.create_task(harness.dispatcher.release("a"))
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.stopping)
    job.go.set()
    assert await running == "done"
    await releasing
    assert harness.unloaded == ["a"]
    assert await waiting == 2


@seeded()
async def test_releasing_a_cold_key_does_nothing(harness: Harness) -> None:
    await harness.dispatcher.release("a")
    assert harness.seen == []


@seeded(attempts_max=1)
async def test_releasing_a_failed_key_forgets_the_failure(harness: Harness) -> None:
    harness.errors["a"] = [StorageError("away")]
    with pytest.raises(Exception, match="away"):
        await harness.dispatcher.submit("a", "default", ignore)
    await harness.dispatcher.release("a")
    assert harness.dispatcher.counts() == NOTHING
    asked_at = harness.loop.time()
    await harness.dispatcher.submit("a", "default", ignore)
    assert harness.load_times[1] - asked_at < 0.01


@seeded()
async def test_closing_puts_every_handler_away(harness: Harness) -> None:
    for n in range(10):
        await harness.dispatcher.submit(f"k{n}", "default", ignore)
    await harness.dispatcher.close(5)
    assert sorted(harness.unloaded) == sorted(harness.loads)
    assert harness.dispatcher.counts() == NOTHING
    await harness.dispatcher.close(5)


@seeded()
async def test_closing_gives_running_jobs_time_and_fails_waiting_ones(harness: Harness) -> None:
    quick, slow = HeldJob("done"), HeldJob()
    finishing = harness.dispatcher.submit("a", "default", quick)
    cut = harness.dispatcher.submit("b", "default", slow)
    await quick.began.wait()
    await slow.began.wait()
    waiting = harness.dispatcher.submit("a", "default", ignore)
    began_at = harness.loop.time()
    closing = asyncio.create_task(harness.dispatcher.close(4))
    with pytest.raises(Overloaded, match="shutting down") as refused:
        await waiting
    assert refused.value.retry_after_s > 0
    quick.go.set()
    assert await finishing == "done"
    with pytest.raises(Overloaded, match="shutting down"):
        await cut
    await closing
    assert slow.cancelled
    assert harness.loop.time() - began_at == pytest.approx(4, abs=0.1)


@seeded(hot_max=2, cancel_s=1.0)
async def test_closing_while_keys_load_wait_fail_and_leave(harness: Harness) -> None:
    harness.load_gate["loading"] = asyncio.Event()
    harness.errors["failing"] = [StorageError("away")] * 9
    replies = [harness.dispatcher.submit("failing", "default", ignore)]
    await harness.until(lambda: harness.dispatcher.status("failing").state is ActivationState.failed)
    await harness.dispatcher.stop("stopped", "by the operator")
    replies.append(harness.dispatcher.submit("loading", "default", ignore))
    await harness.until(lambda: harness.dispatcher.status("loading").state is ActivationState.loading)
    await harness.until_hot("leaving")
    harness.unload_gate["leaving"] = asyncio.Event()
    replies += [harness.dispatcher.submit(key, "default", ignore) for key in ("waiting", "waiting too")]
    await harness.until(lambda: harness.dispatcher.status("leaving").state is ActivationState.stopping)
    closing = asyncio.create_task(harness.dispatcher.close(3))
    errors: list[Any] = await asyncio.gather(*replies, return_exceptions=True)
    assert all(isinstance(error, Overloaded) for error in errors)
    harness.unload_gate["leaving"].set()
    await closing
    assert harness.dispatcher.counts() == NOTHING
    assert harness.loads == ["failing", "loading", "leaving"]


@seeded(drain_s=100.0)
async def test_closing_hurries_a_stop_that_was_under_way(harness: Harness) -> None:
    job = HeldJob()
    running = harness.dispatcher.submit("a", "default", job)
    await job.began.wait()
    stopping = asyncio.create_task(harness.dispatcher.stop("a", "by the operator"))
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.stopping)
    began_at = harness.loop.time()
    await harness.dispatcher.close(2)
    assert harness.loop.time() - began_at < 3
    with pytest.raises(Overloaded):
        await running
    await stopping


@seeded(seeds=1)
async def test_nothing_goes_on_after_closing(harness: Harness) -> None:
    for key in ("a", "b"):
        await harness.until_hot(key)
    harness.dispatcher.drop("a", StorageError("away"))
    await harness.dispatcher.close(1)
    assert [task.get_name() for task in harness.loop.held() if task is not asyncio.current_task()] == []
    timers: list[Any] = harness.loop._timers  # pyright: ignore[reportPrivateUsage]
    assert [timer for _, _, timer in timers if not timer.cancelled()] == []


@seeded(seeds=2)
async def test_a_bug_in_the_room_costs_jobs_but_not_the_key(harness: Harness) -> None:
    actor_of = harness.dispatcher._actors  # pyright: ignore[reportPrivateUsage]
    harness.load_gate["a"] = asyncio.Event()
    reply = harness.dispatcher.submit("a", "default", ignore)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.loading)
    actor_of["a"].condition._life.state = ActivationState.unloaded  # pyright: ignore[reportPrivateUsage]
    harness.load_gate.pop("a").set()
    with pytest.raises(Exception, match="illegal move"):
        await reply
    assert harness.dispatcher.counts() == NOTHING
    harness.live.clear()
    harness.seen.clear()
    assert await harness.dispatcher.submit("a", "default", name) == "a"


@seeded(drain_s=5.0)
async def test_who_works_on_while_its_handler_goes_is_still_told_of_changes(harness: Harness) -> None:
    job = HeldJob("done")
    reply = harness.dispatcher.submit("a", "lane", job)
    await job.began.wait()
    releasing = asyncio.ensure_future(harness.dispatcher.release("a"))
    await asyncio.sleep(1.0)
    assert job.handler is not None and harness.dispatcher.notify("a", lambda handler: handler.notes.append("edited"))
    assert job.handler.notes == ["edited"]
    job.go.set()
    assert await reply == "done"
    await releasing


@seeded(drain_s=1.0, cancel_s=5.0)
async def test_a_cancelled_job_has_its_handler_until_it_has_cleaned_up(harness: Harness) -> None:
    alive: list[bool] = []
    began = asyncio.Event()

    async def slow_to_end(handler: Handler) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(2.0)
            alive.append(handler.alive)

    reply = harness.dispatcher.submit("a", "lane", slow_to_end)
    await began.wait()
    await harness.dispatcher.release("a")
    assert alive == [True]
    with pytest.raises(KelpieError):
        await reply
