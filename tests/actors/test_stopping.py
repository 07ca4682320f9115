"""Stopping: running jobs get their time, waiting ones get an error, the handler is unloaded."""

import asyncio
from unittest.mock import patch

import pytest

from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import AgentStopped, Overloaded
from tests.actors.harness import Handler, Harness, HeldJob, ignore, number, seeded


@seeded()
async def test_stopping_an_idle_key_puts_its_handler_away(harness: Harness) -> None:
    await harness.until_hot()
    status = await harness.dispatcher.stop("a", "by the operator")
    assert status.state is ActivationState.stopped
    assert harness.unloaded == ["a"]
    assert harness.states()[-2:] == [ActivationState.stopping, ActivationState.stopped]
    assert harness.seen[-1].reason == "by the operator"


@seeded()
async def test_stopping_a_cold_key_and_stopping_twice(harness: Harness) -> None:
    for _ in range(2):
        assert (await harness.dispatcher.stop("a", "by the operator")).state is ActivationState.stopped
    assert harness.states() == [ActivationState.stopped]
    assert harness.loads == []


@seeded()
async def test_a_stopped_key_is_used_again_when_its_load_allows_it(harness: Harness) -> None:
    await harness.until_hot()
    await harness.dispatcher.stop("a", "by the operator")
    assert await harness.dispatcher.submit("a", "default", number) == 2
    assert harness.states()[4:8] == [
        ActivationState.stopping,
        ActivationState.stopped,
        ActivationState.unloaded,
        ActivationState.loading,
    ]


@seeded(drain_s=10.0)
async def test_stopping_lets_running_jobs_finish_and_fails_the_waiting_ones(harness: Harness) -> None:
    job = HeldJob("done")
    running = harness.dispatcher.submit("a", "default", job)
    await job.began.wait()
    waiting = harness.dispatcher.submit("a", "default", ignore)
    stopping = asyncio.create_task(harness.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped, match="by the operator"):
        await waiting
    with pytest.raises(AgentStopped):
        harness.dispatcher.submit("a", "other", ignore)
    assert harness.dispatcher.handler("a") is job.handler, "an edit still reaches the running turn"
    job.go.set()
    assert await running == "done"
    assert (await stopping).state is ActivationState.stopped
    assert not job.cancelled


@seeded(drain_s=10.0)
async def test_stopping_cancels_what_does_not_finish_in_time(harness: Harness) -> None:
    job = HeldJob()
    running = harness.dispatcher.submit("a", "default", job)
    await job.began.wait()
    began_at = harness.loop.time()
    await harness.dispatcher.stop("a", "by the operator")
    assert harness.loop.time() - began_at == pytest.approx(10.0, abs=0.1)
    assert job.cancelled
    with pytest.raises(AgentStopped):
        await running


@seeded(drain_s=1.0, cancel_s=2.0)
async def test_a_job_that_will_not_be_cancelled_is_left_behind(harness: Harness) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def stubborn(_: Handler) -> None:
        began.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    running = harness.dispatcher.submit("a", "default", stubborn)
    await began.wait()
    await harness.dispatcher.stop("a", "by the operator")
    with pytest.raises(AgentStopped):
        await running
    assert await harness.dispatcher.submit("a", "default", number) == 2
    job = HeldJob("done")
    reply = harness.dispatcher.submit("a", "default", job)
    await job.began.wait()
    go.set()
    await asyncio.sleep(1)
    assert harness.dispatcher.status("a").state is ActivationState.running, "its late end changes nothing"
    job.go.set()
    assert await reply == "done"


@seeded(drain_s=1.0, cancel_s=2.0)
async def test_a_job_that_is_slow_to_be_cancelled_is_answered_once(harness: Harness) -> None:
    job = HeldJob()

    async def slow(handler: Handler) -> None:
        try:
            await job(handler)
        finally:
            await asyncio.sleep(5)

    running = harness.dispatcher.submit("a", "default", slow)
    await job.began.wait()
    with patch("kelpie.actors.reply.log") as log:
        stopping = asyncio.create_task(harness.dispatcher.stop("a", "by the operator"))
        with pytest.raises(AgentStopped):
            await running
        await stopping
        await asyncio.sleep(10)
    assert log.error.mock_calls == []


@seeded()
async def test_a_job_stopped_before_its_first_step_is_told_to_its_caller(harness: Harness) -> None:
    await harness.until_hot()
    reply = harness.dispatcher.submit("a", "default", ignore)
    actor = harness.dispatcher._actors["a"]  # pyright: ignore[reportPrivateUsage]
    stopping = asyncio.create_task(harness.dispatcher.stop("a", "by the operator"))
    actor.cut()
    with pytest.raises(Overloaded):
        await reply
    await stopping


@seeded()
async def test_an_agent_that_stops_itself_does_not_wait_for_itself_for_ever(harness: Harness) -> None:
    async def stop_me(handler: Handler) -> None:
        await harness.dispatcher.stop(handler.key, "by itself")

    with pytest.raises(AgentStopped, match="by itself"):
        await harness.dispatcher.submit("a", "default", stop_me)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.stopped)
