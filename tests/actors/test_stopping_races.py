"""Stopping a key that is loading, waiting, failing or leaving already."""

import asyncio

import pytest

from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import AgentStopped, NotFound, StorageError
from tests.actors.theatre import Play, Theatre, ignore, name, number, play


@play()
async def test_stopping_while_loading(theatre: Theatre) -> None:
    theatre.load_gate["a"] = asyncio.Event()
    reply = theatre.dispatcher.submit("a", "default", ignore)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.loading)
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped):
        await reply
    assert (await stopping).state is ActivationState.stopped
    assert theatre.states() == [ActivationState.loading, ActivationState.stopping, ActivationState.stopped]
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
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.loading)
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
        await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.loading)
        stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
        with pytest.raises(AgentStopped):
            await reply
        status = await stopping
        assert (status.state, status.error) == (ActivationState.stopped, None)

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
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.loading)
    await theatre.dispatcher.stop("a", "by the operator")
    with pytest.raises(AgentStopped):
        await reply
    assert theatre.dispatcher.counts().hot == 0
    go.set()
    await theatre.until(lambda: theatre.put_away == ["a"])
    assert theatre.dispatcher.status("a").state is ActivationState.stopped


@play()
async def test_stopping_a_key_in_its_backoff(theatre: Theatre) -> None:
    theatre.errors["a"] = [StorageError("away")] * 5
    reply = theatre.dispatcher.submit("a", "default", ignore)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.failed)
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped):
        await reply
    status = await stopping
    assert (status.state, status.error) == (ActivationState.stopped, None)
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
    assert theatre.states() == [ActivationState.stopped]
    job.go.set()
    await first
    assert await third == "third"
    assert "a" not in theatre.loads


@play()
async def test_stopping_a_key_that_is_being_put_away(theatre: Theatre) -> None:
    await theatre.until_hot()
    theatre.put_away_gate["a"] = asyncio.Event()
    releasing = asyncio.create_task(theatre.dispatcher.release("a"))
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.stopping)
    waiting = theatre.dispatcher.submit("a", "default", ignore)
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    with pytest.raises(AgentStopped):
        await waiting
    theatre.put_away_gate["a"].set()
    await releasing
    assert (await stopping).state is ActivationState.stopped
    assert theatre.put_away == ["a"]


@play()
async def test_stopping_a_key_that_broke(theatre: Theatre) -> None:
    job = Play("late")
    running = theatre.dispatcher.submit("a", "default", job)
    await job.began.wait()
    theatre.dispatcher.drop("a", StorageError("away"))
    assert theatre.dispatcher.status("a").state is ActivationState.failed
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.stopping)
    job.go.set()
    assert await running == "late"
    assert (await stopping).state is ActivationState.stopped


@play()
async def test_a_stop_whose_caller_goes_away_is_carried_out(theatre: Theatre) -> None:
    await theatre.until_hot()
    theatre.put_away_gate["a"] = asyncio.Event()
    stopping = asyncio.create_task(theatre.dispatcher.stop("a", "by the operator"))
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.stopping)
    stopping.cancel()
    await asyncio.wait([stopping])
    theatre.put_away_gate["a"].set()
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.stopped)
