"""Stopping, releasing and closing, and the races between them and everything else."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from kelpie.actors.dispatcher import Counts
from kelpie.core.errors import AgentStopped, NotFound, Overloaded, StorageError
from kelpie.core.lifecycle import State
from tests.actors.theatre import Handler, Play, Theatre, ignore, name, number, play

NOTHING = Counts(hot=0, idle=0, pending=0, resting=0)


@play()
async def test_stopping_an_idle_key_puts_its_handler_away(theatre: Theatre) -> None:
    await theatre.until_hot()
    status = await theatre.dispatcher.stop("a", "by the operator")
    assert status.state is State.stopped
    assert theatre.put_away == ["a"]
    assert theatre.states()[-2:] == [State.stopping, State.stopped]
    assert theatre.seen[-1].reason == "by the operator"


@play()
async def test_stopping_a_cold_key_and_stopping_twice(theatre: Theatre) -> None:
    for _ in range(2):
        assert (await theatre.dispatcher.stop("a", "by the operator")).state is State.stopped
    assert theatre.states() == [State.stopped]
    assert theatre.loads == []


@play()
async def test_a_stopped_key_is_used_again_when_its_load_allows_it(theatre: Theatre) -> None:
    await theatre.until_hot()
    await theatre.dispatcher.stop("a", "by the operator")
    assert await theatre.dispatcher.submit("a", "default", number) == 2
    assert theatre.states()[4:8] == [State.stopping, State.stopped, State.unloaded, State.loading]


@play(drain_s=10.0)
async def test_stopping_lets_running_jobs_finish_and_fails_the_waiting_ones(theatre: Theatre) -> None:
    job = Play("done")
    running = theatre.dispatcher.submit("a", "default", job)
    await job.began.wait()
    waiting = theatre.dispatcher.submit("a", "default", ignore)
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped, match="by the operator"):
        await waiting
    with pytest.raises(AgentStopped):
        theatre.dispatcher.submit("a", "other", ignore)
    assert theatre.dispatcher.handler("a") is job.handler, "an edit still reaches the running turn"
    job.go.set()
    assert await running == "done"
    assert (await stopping).state is State.stopped
    assert not job.cancelled


@play(drain_s=10.0)
async def test_stopping_cancels_what_does_not_finish_in_time(theatre: Theatre) -> None:
    job = Play()
    running = theatre.dispatcher.submit("a", "default", job)
    await job.began.wait()
    began_at = theatre.loop.time()
    await theatre.dispatcher.stop("a", "by the operator")
    assert theatre.loop.time() - began_at == pytest.approx(10.0, abs=0.1)
    assert job.cancelled
    with pytest.raises(AgentStopped):
        await running


@play(drain_s=1.0, cancel_s=2.0)
async def test_a_job_that_will_not_be_cancelled_is_left_behind(theatre: Theatre) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def stubborn(_: Handler) -> None:
        began.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    running = theatre.dispatcher.submit("a", "default", stubborn)
    await began.wait()
    await theatre.dispatcher.stop("a", "by the operator")
    with pytest.raises(AgentStopped):
        await running
    assert await theatre.dispatcher.submit("a", "default", number) == 2
    job = Play("done")
    reply = theatre.dispatcher.submit("a", "default", job)
    await job.began.wait()
    go.set()
    await asyncio.sleep(1)
    assert theatre.dispatcher.status("a").state is State.running, "its late end changes nothing"
    job.go.set()
    assert await reply == "done"


@play(drain_s=1.0, cancel_s=2.0)
async def test_a_job_that_is_slow_to_be_cancelled_is_answered_once(theatre: Theatre) -> None:
    job = Play()

    async def slow(handler: Handler) -> None:
        try:
            await job(handler)
        finally:
            await asyncio.sleep(5)

    running = theatre.dispatcher.submit("a", "default", slow)
    await job.began.wait()
    with patch("kelpie.actors.reply.log") as log:
        stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
        with pytest.raises(AgentStopped):
            await running
        await stopping
        await asyncio.sleep(10)
    assert log.error.mock_calls == []


@play()
async def test_a_job_stopped_before_its_first_step_is_told_to_its_caller(theatre: Theatre) -> None:
    await theatre.until_hot()
    reply = theatre.dispatcher.submit("a", "default", ignore)
    actor = theatre.dispatcher._actors["a"]  # pyright: ignore[reportPrivateUsage]
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    actor.cut()
    with pytest.raises(Overloaded):
        await reply
    await stopping


@play()
async def test_an_agent_that_stops_itself_does_not_wait_for_itself_for_ever(theatre: Theatre) -> None:
    async def stop_me(handler: Handler) -> None:
        await theatre.dispatcher.stop(handler.key, "by itself")

    with pytest.raises(AgentStopped, match="by itself"):
        await theatre.dispatcher.submit("a", "default", stop_me)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.stopped)


@play()
async def test_stopping_while_loading(theatre: Theatre) -> None:
    theatre.load_gate["a"] = asyncio.Event()
    reply = theatre.dispatcher.submit("a", "default", ignore)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.loading)
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped):
        await reply
    assert (await stopping).state is State.stopped
    assert theatre.states() == [State.loading, State.stopping, State.stopped]
    assert theatre.dispatcher.counts().hot == 0
    del theatre.load_gate["a"]
    assert await theatre.dispatcher.submit("a", "default", number) == 2


@play(cancel_s=2.0, deactivate_s=1.0)
async def test_a_load_that_succeeds_although_it_was_cancelled_is_put_away(theatre: Theatre) -> None:
    async def stubborn(_: str) -> None:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            return

    theatre.before_load = stubborn
    reply = theatre.dispatcher.submit("a", "default", ignore)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.loading)
    await theatre.dispatcher.stop("a", "by the operator")
    assert theatre.put_away == ["a"]
    with pytest.raises(AgentStopped):
        await reply


@pytest.mark.parametrize("error", [StorageError("interrupted"), NotFound("agent", "a")])
def test_a_load_that_answers_its_cancellation_with_an_error_changes_nothing(error: Exception) -> None:
    async def touchy(_: str) -> None:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            raise error from None

    @play()
    async def run(theatre: Theatre) -> None:
        theatre.before_load = touchy
        reply = theatre.dispatcher.submit("a", "default", ignore)
        await theatre.until(lambda: theatre.dispatcher.status("a").state is State.loading)
        stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
        with pytest.raises(AgentStopped):
            await reply
        status = await stopping
        assert (status.state, status.error) == (State.stopped, None)

    for seed in range(3):
        run(seed)


@play(cancel_s=1.0)
async def test_a_load_that_will_not_be_cancelled_does_not_hold_up_the_stop(theatre: Theatre) -> None:
    go = asyncio.Event()

    async def stubborn(_: str) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    theatre.before_load = stubborn
    reply = theatre.dispatcher.submit("a", "default", ignore)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.loading)
    await theatre.dispatcher.stop("a", "by the operator")
    with pytest.raises(AgentStopped):
        await reply
    assert theatre.dispatcher.counts().hot == 0
    go.set()
    await theatre.until(lambda: theatre.put_away == ["a"])
    assert theatre.dispatcher.status("a").state is State.stopped


@play()
async def test_stopping_a_key_in_its_backoff(theatre: Theatre) -> None:
    theatre.errors["a"] = [StorageError("away")] * 5
    reply = theatre.dispatcher.submit("a", "default", ignore)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.failed)
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped):
        await reply
    status = await stopping
    assert (status.state, status.error) == (State.stopped, None)
    await asyncio.sleep(60)
    assert theatre.loads == ["a"]


@play(hot_max=1)
async def test_stopping_a_key_that_waits_for_a_place(theatre: Theatre) -> None:
    job = Play()
    first = theatre.dispatcher.submit("first", "default", job)
    await job.began.wait()
    waiting = theatre.dispatcher.submit("a", "default", ignore)
    third = theatre.dispatcher.submit("third", "default", name)
    await asyncio.sleep(1)
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped):
        await waiting
    await stopping
    assert theatre.states() == [State.stopped]
    job.go.set()
    await first
    assert await third == "third"
    assert "a" not in theatre.loads


@play()
async def test_stopping_a_key_that_is_being_put_away(theatre: Theatre) -> None:
    await theatre.until_hot()
    theatre.put_away_gate["a"] = asyncio.Event()
    releasing = asyncio.create_task(theatre.dispatcher.release("a"))
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.stopping)
    waiting = theatre.dispatcher.submit("a", "default", ignore)
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped):
        await waiting
    theatre.put_away_gate["a"].set()
    await releasing
    assert (await stopping).state is State.stopped
    assert theatre.put_away == ["a"]


@play()
async def test_stopping_a_key_that_broke(theatre: Theatre) -> None:
    job = Play("late")
    running = theatre.dispatcher.submit("a", "default", job)
    await job.began.wait()
    theatre.dispatcher.drop("a", StorageError("away"))
    assert theatre.dispatcher.status("a").state is State.failed
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.stopping)
    job.go.set()
    assert await running == "late"
    assert (await stopping).state is State.stopped


@play()
async def test_a_stop_whose_caller_goes_away_is_carried_out(theatre: Theatre) -> None:
    await theatre.until_hot()
    theatre.put_away_gate["a"] = asyncio.Event()
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.stopping)
    stopping.cancel()
    await asyncio.wait([stopping])
    theatre.put_away_gate["a"].set()
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.stopped)


@play()
async def test_releasing_unloads_and_keeps_what_waits(theatre: Theatre) -> None:
    job = Play("done")
    running = theatre.dispatcher.submit("a", "default", job)
    await job.began.wait()
    waiting = theatre.dispatcher.submit("a", "default", number)
    releasing = asyncio.create_task(theatre.dispatcher.release("a"))
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.stopping)
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
    await theatre.until(lambda: theatre.dispatcher.status("failing").state is State.failed)
    await theatre.dispatcher.stop("stopped", "by the operator")
    replies.append(theatre.dispatcher.submit("loading", "default", ignore))
    await theatre.until(lambda: theatre.dispatcher.status("loading").state is State.loading)
    await theatre.until_hot("leaving")
    theatre.put_away_gate["leaving"] = asyncio.Event()
    replies += [theatre.dispatcher.submit(key, "default", ignore) for key in ("waiting", "waiting too")]
    await theatre.until(lambda: theatre.dispatcher.status("leaving").state is State.stopping)
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
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.stopping)
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
    await theatre.until(lambda: theatre.dispatcher.status("a").state is State.loading)
    actor_of["a"].condition._life.state = State.unloaded  # pyright: ignore[reportPrivateUsage]
    theatre.load_gate.pop("a").set()
    with pytest.raises(Exception, match="illegal move"):
        await reply
    assert theatre.dispatcher.counts() == NOTHING
    theatre.live.clear()
    theatre.seen.clear()
    assert await theatre.dispatcher.submit("a", "default", name) == "a"
