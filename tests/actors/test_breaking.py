"""Handlers that break while they are in use: the activation goes, the waiting jobs stay, others notice nothing."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import ActivationFailed, DiskFull, Fenced, StorageError
from tests.actors.theatre import Handler, Play, Theatre, ignore, name, number, play, raising

BREAKING = (StorageError("the disk is away"), DiskFull("the disk is full"), Fenced("another node has it"))


@pytest.mark.parametrize("error", BREAKING)
def test_an_error_of_the_storage_ends_the_activation(error: StorageError) -> None:
    @play(seeds=3)
    async def run(theatre: Theatre) -> None:
        await theatre.until_hot()
        with pytest.raises(type(error)):
            await theatre.dispatcher.submit("a", "default", raising(error))
        await theatre.until(lambda: theatre.put_away == ["a"])
        status = theatre.dispatcher.status("a")
        assert (status.state, status.error, status.attempts) == (ActivationState.failed, str(error), 1)
        assert theatre.dispatcher.handler("a") is None
        asked_at = theatre.loop.time()
        assert await theatre.dispatcher.submit("a", "default", number) == 2
        assert theatre.load_times[1] - asked_at < 1.0

    for seed in range(3):
        run(seed)


@play()
async def test_the_next_use_comes_after_the_backoff(theatre: Theatre) -> None:
    await theatre.until_hot()
    broke_at = theatre.loop.time()
    with pytest.raises(StorageError):
        await theatre.dispatcher.submit("a", "default", raising(StorageError("away")))
    await theatre.dispatcher.submit("a", "default", ignore)
    assert 0.2 < theatre.load_times[1] - broke_at < 1.0


@play()
async def test_waiting_jobs_of_all_lanes_run_on_the_new_activation_in_order(theatre: Theatre) -> None:
    breaks, other = Play(error=StorageError("away")), Play("other")
    one = theatre.dispatcher.submit("a", "one", breaks)
    two = theatre.dispatcher.submit("a", "two", other)
    await breaks.began.wait()
    await other.began.wait()
    order: list[int] = []

    def job(n: int) -> Callable[[Handler], Awaitable[int]]:
        async def work(handler: Handler) -> int:
            order.append(n)
            return handler.number

        return work

    waiting = [theatre.dispatcher.submit("a", ("one", "two")[n % 2], job(n)) for n in range(6)]
    breaks.go.set()
    with pytest.raises(StorageError):
        await one
    assert not two.done(), "what runs in another lane is given time"
    other.go.set()
    assert await two == "other"
    assert await asyncio.gather(*waiting) == [2] * 6
    assert [n for n in order if n % 2 == 0] == [0, 2, 4]
    assert [n for n in order if n % 2 == 1] == [1, 3, 5]
    assert theatre.put_away == ["a"]


@play()
async def test_a_fenced_activation_ends_its_other_lanes_at_once(theatre: Theatre) -> None:
    fenced, other = Play(error=Fenced("another node has it")), Play()
    one = theatre.dispatcher.submit("a", "one", fenced)
    two = theatre.dispatcher.submit("a", "two", other)
    await fenced.began.wait()
    await other.began.wait()
    fenced.go.set()
    with pytest.raises(Fenced):
        await one
    asked_at = theatre.loop.time()
    with pytest.raises(ActivationFailed, match="another node has it"):
        await two
    assert other.cancelled
    assert theatre.loop.time() - asked_at < 0.1


@play(drain_s=3.0)
async def test_other_lanes_of_a_broken_activation_have_so_long_to_finish(theatre: Theatre) -> None:
    other = Play()
    two = theatre.dispatcher.submit("a", "two", other)
    await other.began.wait()
    with pytest.raises(StorageError):
        await theatre.dispatcher.submit("a", "one", raising(StorageError("away")))
    broke_at = theatre.loop.time()
    with pytest.raises(ActivationFailed, match="away"):
        await two
    assert theatre.loop.time() - broke_at == pytest.approx(3.0, abs=0.1)
    assert await theatre.dispatcher.submit("a", "one", number) == 2


@play()
async def test_an_activation_can_be_dropped_from_outside(theatre: Theatre) -> None:
    await theatre.until_hot()
    theatre.dispatcher.drop("a", RuntimeError("the lease is lost"))
    assert theatre.dispatcher.status("a").error == "the lease is lost"
    assert await theatre.dispatcher.submit("a", "default", number) == 2
    assert theatre.put_away == ["a"]


@play()
async def test_dropping_a_cold_key_does_nothing(theatre: Theatre) -> None:
    theatre.dispatcher.drop("a", RuntimeError("?"))
    assert theatre.seen == []


@play()
async def test_dropping_a_key_that_is_loading_loads_it_again(theatre: Theatre) -> None:
    theatre.load_gate["a"] = asyncio.Event()
    reply = theatre.dispatcher.submit("a", "default", number)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.loading)
    theatre.dispatcher.drop("a", RuntimeError("the lease is lost"))
    theatre.load_gate["a"].set()
    assert await reply == 2
    assert theatre.put_away == ["a"]


@play()
async def test_dropping_twice_is_one_failure(theatre: Theatre) -> None:
    await theatre.until_hot()
    theatre.dispatcher.drop("a", RuntimeError("first"))
    theatre.dispatcher.drop("a", RuntimeError("second"))
    status = theatre.dispatcher.status("a")
    assert (status.error, status.attempts) == ("first", 1)


@play()
async def test_a_handler_that_breaks_on_every_job_is_loaded_more_and_more_slowly(theatre: Theatre) -> None:
    for _ in range(6):
        with pytest.raises(StorageError):
            await theatre.dispatcher.submit("a", "default", raising(StorageError("away")))
    gaps = [later - earlier for earlier, later in zip(theatre.load_times, theatre.load_times[1:], strict=False)]
    assert gaps[0] < 1.0 and gaps[-1] > 4.0


@play()
async def test_an_agents_failure_never_touches_another(theatre: Theatre) -> None:
    neighbour = Play("fine")
    reply = theatre.dispatcher.submit("b", "default", neighbour)
    await neighbour.began.wait()
    with pytest.raises(Fenced):
        await theatre.dispatcher.submit("a", "default", raising(Fenced("gone")))
    assert await theatre.dispatcher.submit("c", "default", name) == "c"
    neighbour.go.set()
    assert await reply == "fine"
    assert theatre.states("b")[:3] == [ActivationState.loading, ActivationState.loaded, ActivationState.running]
    assert "b" not in theatre.put_away


@play()
async def test_a_failure_while_putting_away_does_not_keep_the_key_from_coming_back(theatre: Theatre) -> None:
    async def fail(_: str) -> None:
        raise StorageError("still away")

    theatre.before_put_away = fail
    await theatre.until_hot()
    theatre.dispatcher.drop("a", StorageError("away"))
    assert await theatre.dispatcher.submit("a", "default", number) == 2


@play(deactivate_s=2.0)
async def test_a_handler_that_hangs_while_it_is_put_away_is_given_up(theatre: Theatre) -> None:
    theatre.put_away_gate["a"] = asyncio.Event()
    await theatre.until_hot()
    theatre.dispatcher.drop("a", StorageError("away"))
    assert await theatre.dispatcher.submit("a", "default", number) == 2
