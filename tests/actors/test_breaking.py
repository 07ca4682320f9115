"""Handlers that break while they are in use: the activation goes, the waiting jobs stay, others notice nothing."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import ActivationFailed, DiskFull, Fenced, StorageError
from tests.actors.harness import Handler, Harness, HeldJob, ignore, name, number, raising, seeded

BREAKING = (StorageError("the disk is away"), DiskFull("the disk is full"), Fenced("another node has it"))


@pytest.mark.parametrize("error", BREAKING)
def test_an_error_of_the_storage_ends_the_activation(error: StorageError) -> None:
    @seeded(seeds=3)
    async def run(harness: Harness) -> None:
        await harness.until_hot()
        with pytest.raises(type(error)):
            await harness.dispatcher.submit("a", "default", raising(error))
        await harness.until(lambda: harness.unloaded == ["a"])
        status = harness.dispatcher.status("a")
        assert (status.state, status.error, status.attempts) == (ActivationState.failed, str(error), 1)
        assert harness.dispatcher.handler("a") is None
        asked_at = harness.loop.time()
        assert await harness.dispatcher.submit("a", "default", number) == 2
        assert harness.load_times[1] - asked_at < 1.0

    for seed in range(3):
        run(seed)


@seeded()
async def test_the_next_use_comes_after_the_backoff(harness: Harness) -> None:
    await harness.until_hot()
    broke_at = harness.loop.time()
    with pytest.raises(StorageError):
        await harness.dispatcher.submit("a", "default", raising(StorageError("away")))
    await harness.dispatcher.submit("a", "default", ignore)
    assert 0.2 < harness.load_times[1] - broke_at < 1.0


@seeded()
async def test_waiting_jobs_of_all_lanes_run_on_the_new_activation_in_order(harness: Harness) -> None:
    breaks, other = HeldJob(error=StorageError("away")), HeldJob("other")
    one = harness.dispatcher.submit("a", "one", breaks)
    two = harness.dispatcher.submit("a", "two", other)
    await breaks.began.wait()
    await other.began.wait()
    order: list[int] = []

    def job(n: int) -> Callable[[Handler], Awaitable[int]]:
        async def work(handler: Handler) -> int:
            order.append(n)
            return handler.number

        return work

    waiting = [harness.dispatcher.submit("a", ("one", "two")[n % 2], job(n)) for n in range(6)]
    breaks.go.set()
    with pytest.raises(StorageError):
        await one
    assert not two.done(), "what runs in another lane is given time"
    other.go.set()
    assert await two == "other"
    assert await asyncio.gather(*waiting) == [2] * 6
    assert [n for n in order if n % 2 == 0] == [0, 2, 4]
    assert [n for n in order if n % 2 == 1] == [1, 3, 5]
    assert harness.unloaded == ["a"]


@seeded()
async def test_a_fenced_activation_ends_its_other_lanes_at_once(harness: Harness) -> None:
    fenced, other = HeldJob(error=Fenced("another node has it")), HeldJob()
    one = harness.dispatcher.submit("a", "one", fenced)
    two = harness.dispatcher.submit("a", "two", other)
    await fenced.began.wait()
    await other.began.wait()
    fenced.go.set()
    with pytest.raises(Fenced):
        await one
    asked_at = harness.loop.time()
    with pytest.raises(ActivationFailed, match="another node has it"):
        await two
    assert other.cancelled
    assert harness.loop.time() - asked_at < 0.1


@seeded(drain_s=3.0)
async def test_other_lanes_of_a_broken_activation_have_so_long_to_finish(harness: Harness) -> None:
    other = HeldJob()
    two = harness.dispatcher.submit("a", "two", other)
    await other.began.wait()
    with pytest.raises(StorageError):
        await harness.dispatcher.submit("a", "one", raising(StorageError("away")))
    broke_at = harness.loop.time()
    with pytest.raises(ActivationFailed, match="away"):
        await two
    assert harness.loop.time() - broke_at == pytest.approx(3.0, abs=0.1)
    assert await harness.dispatcher.submit("a", "one", number) == 2


@seeded()
async def test_an_activation_can_be_dropped_from_outside(harness: Harness) -> None:
    await harness.until_hot()
    harness.dispatcher.drop("a", RuntimeError("the lease is lost"))
    assert harness.dispatcher.status("a").error == "the lease is lost"
    assert await harness.dispatcher.submit("a", "default", number) == 2
    assert harness.unloaded == ["a"]


@seeded()
async def test_dropping_a_cold_key_does_nothing(harness: Harness) -> None:
    harness.dispatcher.drop("a", RuntimeError("?"))
    assert harness.seen == []


@seeded()
async def test_dropping_a_key_that_is_loading_loads_it_again(harness: Harness) -> None:
    harness.load_gate["a"] = asyncio.Event()
    reply = harness.dispatcher.submit("a", "default", number)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.loading)
    harness.dispatcher.drop("a", RuntimeError("the lease is lost"))
    harness.load_gate["a"].set()
    assert await reply == 2
    assert harness.unloaded == ["a"]


@seeded()
async def test_dropping_twice_is_one_failure(harness: Harness) -> None:
    await harness.until_hot()
    harness.dispatcher.drop("a", RuntimeError("first"))
    harness.dispatcher.drop("a", RuntimeError("second"))
    status = harness.dispatcher.status("a")
    assert (status.error, status.attempts) == ("first", 1)


@seeded()
async def test_a_handler_that_breaks_on_every_job_is_loaded_more_and_more_slowly(harness: Harness) -> None:
    for _ in range(6):
        with pytest.raises(StorageError):
            await harness.dispatcher.submit("a", "default", raising(StorageError("away")))
    gaps = [later - earlier for earlier, later in zip(harness.load_times, harness.load_times[1:], strict=False)]
    assert gaps[0] < 1.0 and gaps[-1] > 4.0


@seeded()
async def test_an_agents_failure_never_touches_another(harness: Harness) -> None:
    neighbour = HeldJob("fine")
    reply = harness.dispatcher.submit("b", "default", neighbour)
    await neighbour.began.wait()
    with pytest.raises(Fenced):
        await harness.dispatcher.submit("a", "default", raising(Fenced("gone")))
    assert await harness.dispatcher.submit("c", "default", name) == "c"
    neighbour.go.set()
    assert await reply == "fine"
    assert harness.states("b")[:3] == [ActivationState.loading, ActivationState.loaded, ActivationState.running]
    assert "b" not in harness.unloaded


@seeded()
async def test_a_failure_while_putting_away_does_not_keep_the_key_from_coming_back(harness: Harness) -> None:
    async def fail(_: str) -> None:
        raise StorageError("still away")

    harness.before_unload = fail
    await harness.until_hot()
    harness.dispatcher.drop("a", StorageError("away"))
    assert await harness.dispatcher.submit("a", "default", number) == 2


@seeded(deactivate_s=2.0)
async def test_a_handler_that_hangs_while_it_is_put_away_is_given_up(harness: Harness) -> None:
    harness.unload_gate["a"] = asyncio.Event()
    await harness.until_hot()
    harness.dispatcher.drop("a", StorageError("away"))
    assert await harness.dispatcher.submit("a", "default", number) == 2


@seeded(drain_s=5.0, backoff_first_s=0.5)
async def test_a_job_that_still_succeeds_on_a_broken_handler_does_not_end_the_backoff(harness: Harness) -> None:
    await harness.until_hot()
    slow = HeldJob("fine")
    other = harness.dispatcher.submit("a", "slow", slow)
    await slow.began.wait()
    with pytest.raises(StorageError):
        await harness.dispatcher.submit("a", "lane", raising(StorageError("disk")))
    slow.go.set()
    assert await other == "fine"
    await harness.until(lambda: harness.dispatcher.handler("a") is None)
    status = harness.dispatcher.status("a")
    assert (status.state, status.error, status.attempts) == (ActivationState.failed, "disk", 1)
    broke_s = harness.loop.time()
    assert await harness.dispatcher.submit("a", "lane", number) == 2
    assert harness.loop.time() - broke_s >= 0.2, "the backoff was over before its time"


@seeded()
async def test_a_change_that_cannot_be_applied_during_a_load_costs_the_handler(harness: Harness) -> None:
    harness.load_gate["a"] = asyncio.Event()
    reply = harness.dispatcher.submit("a", "lane", number)
    await harness.until(lambda: harness.loads == ["a"])

    def fails(_: Handler) -> None:
        raise ValueError("half a change")

    assert harness.dispatcher.notify("a", fails)
    harness.load_gate["a"].set()
    assert await reply == 2, "the first handler has only a part of the change"
