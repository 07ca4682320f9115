"""Stopping: running jobs get their time, waiting ones are told, the handler is put away."""

import asyncio
from unittest.mock import patch

import pytest

from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import AgentStopped, Overloaded
from tests.actors.theatre import Handler, Play, Theatre, ignore, number, play


@play()
async def test_stopping_an_idle_key_puts_its_handler_away(theatre: Theatre) -> None:
    await theatre.until_hot()
    status = await theatre.dispatcher.stop("a", "by the operator")
    assert status.state is ActivationState.stopped
    assert theatre.put_away == ["a"]
    assert theatre.states()[-2:] == [ActivationState.stopping, ActivationState.stopped]
    assert theatre.seen[-1].reason == "by the operator"


@play()
async def test_stopping_a_cold_key_and_stopping_twice(theatre: Theatre) -> None:
    for _ in range(2):
        assert (await theatre.dispatcher.stop("a", "by the operator")).state is ActivationState.stopped
    assert theatre.states() == [ActivationState.stopped]
    assert theatre.loads == []


@play()
async def test_a_stopped_key_is_used_again_when_its_load_allows_it(theatre: Theatre) -> None:
    await theatre.until_hot()
    await theatre.dispatcher.stop("a", "by the operator")
    assert await theatre.dispatcher.submit("a", "default", number) == 2
    assert theatre.states()[4:8] == [
        ActivationState.stopping,
        ActivationState.stopped,
        ActivationState.unloaded,
        ActivationState.loading,
    ]


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
    assert (await stopping).state is ActivationState.stopped
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
    assert theatre.dispatcher.status("a").state is ActivationState.running, "its late end changes nothing"
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
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.stopped)
