"""Stopping a key that is loading, waiting, failing or leaving already."""

import asyncio

import pytest

from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import AgentStopped, NotFound, StorageError
from tests.actors.harness import Harness, HeldJob, ignore, name, number, seeded


@seeded()
async def test_stopping_while_loading(harness: Harness) -> None:
    harness.load_gate["a"] = asyncio.Event()
    reply = harness.dispatcher.submit("a", "default", ignore)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.loading)
    stopping = asyncio.create_task(harness.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped):
        await reply
    assert (await stopping).state is ActivationState.stopped
    assert harness.states() == [ActivationState.loading, ActivationState.stopping, ActivationState.stopped]
    assert harness.dispatcher.counts().hot == 0
    del harness.load_gate["a"]
    assert await harness.dispatcher.submit("a", "default", number) == 2


@seeded(cancel_s=2.0, deactivate_s=1.0)
async def test_a_load_that_succeeds_although_it_was_cancelled_is_put_away(harness: Harness) -> None:
    async def stubborn(_: str) -> None:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            return

    harness.before_load = stubborn
    reply = harness.dispatcher.submit("a", "default", ignore)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.loading)
    await harness.dispatcher.stop("a", "by the operator")
    assert harness.unloaded == ["a"]
    with pytest.raises(AgentStopped):
        await reply


@pytest.mark.parametrize("error", [StorageError("interrupted"), NotFound("agent", "a")])
def test_a_load_that_answers_its_cancellation_with_an_error_changes_nothing(error: Exception) -> None:
    async def touchy(_: str) -> None:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            raise error from None

    @seeded()
    async def run(harness: Harness) -> None:
        harness.before_load = touchy
        reply = harness.dispatcher.submit("a", "default", ignore)
        await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.loading)
        stopping = asyncio.create_task(harness.dispatcher.stop("a", "by the operator"))
        with pytest.raises(AgentStopped):
            await reply
        status = await stopping
        assert (status.state, status.error) == (ActivationState.stopped, None)

    for seed in range(3):
        run(seed)


@seeded(cancel_s=1.0)
async def test_a_load_that_will_not_be_cancelled_does_not_hold_up_the_stop(harness: Harness) -> None:
    go = asyncio.Event()

    async def stubborn(_: str) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    harness.before_load = stubborn
    reply = harness.dispatcher.submit("a", "default", ignore)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.loading)
    await harness.dispatcher.stop("a", "by the operator")
    with pytest.raises(AgentStopped):
        await reply
    assert harness.dispatcher.counts().hot == 0
    go.set()
    await harness.until(lambda: harness.unloaded == ["a"])
    assert harness.dispatcher.status("a").state is ActivationState.stopped


@seeded()
async def test_stopping_a_key_in_its_backoff(harness: Harness) -> None:
    harness.errors["a"] = [StorageError("away")] * 5
    reply = harness.dispatcher.submit("a", "default", ignore)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.failed)
    stopping = asyncio.create_task(harness.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped):
        await reply
    status = await stopping
    assert (status.state, status.error) == (ActivationState.stopped, None)
    await asyncio.sleep(60)
    assert harness.loads == ["a"]


@seeded(hot_max=1)
async def test_stopping_a_key_that_waits_for_a_place(harness: Harness) -> None:
    job = HeldJob()
    first = harness.dispatcher.submit("first", "default", job)
    await job.began.wait()
    waiting = harness.dispatcher.submit("a", "default", ignore)
    third = harness.dispatcher.submit("third", "default", name)
    await asyncio.sleep(1)
    stopping = asyncio.create_task(harness.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped):
        await waiting
    await stopping
    assert harness.states() == [ActivationState.stopped]
    job.go.set()
    await first
    assert await third == "third"
    assert "a" not in harness.loads


@seeded()
async def test_stopping_a_key_that_is_being_put_away(harness: Harness) -> None:
    await harness.until_hot()
    harness.unload_gate["a"] = asyncio.Event()
    releasing = asyncio.create_task(harness.dispatcher.release("a"))
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.stopping)
    waiting = harness.dispatcher.submit("a", "default", ignore)
    stopping = asyncio.create_task(harness.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped):
        await waiting
    harness.unload_gate["a"].set()
    await releasing
    assert (await stopping).state is ActivationState.stopped
    assert harness.unloaded == ["a"]


@seeded()
async def test_stopping_a_key_that_broke(harness: Harness) -> None:
    job = HeldJob("late")
    running = harness.dispatcher.submit("a", "default", job)
    await job.began.wait()
    harness.dispatcher.drop("a", StorageError("away"))
    assert harness.dispatcher.status("a").state is ActivationState.failed
    stopping = asyncio.create_task(harness.dispatcher.stop("a", "by the operator"))
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.stopping)
    job.go.set()
    assert await running == "late"
    assert (await stopping).state is ActivationState.stopped


@seeded()
async def test_a_stop_whose_caller_goes_away_is_carried_out(harness: Harness) -> None:
    await harness.until_hot()
    harness.unload_gate["a"] = asyncio.Event()
    stopping = asyncio.create_task(harness.dispatcher.stop("a", "by the operator"))
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.stopping)
    stopping.cancel()
    await asyncio.wait([stopping])
    harness.unload_gate["a"].set()
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.stopped)
