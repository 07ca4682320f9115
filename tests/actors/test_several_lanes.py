"""Several lanes of one key: as many run as may, and each is waited for when their handler has to go."""

import asyncio

import pytest

from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import ActivationFailed, Fenced
from tests.actors.harness import Harness, HeldJob, ignore, number, seeded


@seeded(lanes_max=2)
async def test_a_further_lane_waits_for_one_that_ends_also_when_the_handler_is_loaded(harness: Harness) -> None:
    await harness.until_hot()
    jobs = [HeldJob(lane) for lane in "xyz"]
    replies = [harness.dispatcher.submit("a", lane, job) for lane, job in zip("xyz", jobs, strict=True)]
    await asyncio.gather(jobs[0].began.wait(), jobs[1].began.wait())
    await asyncio.sleep(1)
    assert not jobs[2].began.is_set()
    jobs[1].go.set()
    await jobs[2].began.wait()
    assert not replies[0].done()
    jobs[0].go.set()
    jobs[2].go.set()
    assert await asyncio.gather(*replies) == ["x", "y", "z"]


@seeded(drain_s=10.0)
async def test_each_of_two_jobs_has_the_whole_time_to_finish(harness: Harness) -> None:
    first, second = HeldJob("first"), HeldJob("second")
    replies = [harness.dispatcher.submit("a", lane, job) for lane, job in (("x", first), ("y", second))]
    await asyncio.gather(first.began.wait(), second.began.wait())
    releasing = asyncio.create_task(harness.dispatcher.release("a"))
    await asyncio.sleep(1)
    first.go.set()
    assert await replies[0] == "first"
    await asyncio.sleep(5)
    assert harness.unloaded == []
    second.go.set()
    assert await replies[1] == "second"
    await releasing
    assert harness.unloaded == ["a"]
    assert not second.cancelled


@seeded(drain_s=10.0)
async def test_the_first_reason_to_cut_jobs_off_is_the_one_they_are_told(harness: Harness) -> None:
    stubborn = asyncio.Event()

    async def lets_go_late(_: object) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await stubborn.wait()

    reply = harness.dispatcher.submit("a", "x", lets_go_late)
    await harness.until(lambda: harness.dispatcher.handler("a") is not None)
    await asyncio.sleep(0.1)
    harness.dispatcher.drop("a", Fenced("another server has it"))
    closing = asyncio.create_task(harness.dispatcher.close(0.5))
    await asyncio.sleep(1)
    stubborn.set()
    with pytest.raises(ActivationFailed, match="another server has it"):
        await reply
    await closing


@seeded()
async def test_a_job_that_comes_while_a_load_is_given_up_begins_no_second_load(harness: Harness) -> None:
    harness.load_gate["a"] = asyncio.Event()
    first = harness.dispatcher.submit("a", "x", number)
    await harness.until(lambda: bool(harness.loading))
    releasing = asyncio.create_task(harness.dispatcher.release("a"))
    await asyncio.sleep(0)
    second = harness.dispatcher.submit("a", "y", number)
    harness.load_gate["a"].set()
    assert {await first, await second} <= {1, 2}
    await releasing
    assert len(harness.loads) <= 2


@seeded(backoff_first_s=0.5)
async def test_an_unloaded_key_has_no_failure_any_more_and_is_loaded_at_once(harness: Harness) -> None:
    harness.errors["a"] = [OSError("no disk")] * 5
    with pytest.raises(ActivationFailed):
        await harness.dispatcher.submit("a", "x", ignore)
    assert harness.dispatcher.status("a").attempts == 5
    await harness.dispatcher.release("a")
    status = harness.dispatcher.status("a")
    assert (status.state, status.attempts, status.error) == (ActivationState.unloaded, 0, None)
    now = harness.loop.time()
    await harness.dispatcher.submit("a", "x", ignore)
    assert harness.load_times[-1] - now < 0.1
