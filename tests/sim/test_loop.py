"""The loop: virtual time, one callback at a time, and nothing of the outside world."""

import asyncio
import gc
import socket
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from kelpie.sim.loop.errors import Deadlock, NotSimulated, OutOfBounds
from kelpie.sim.loop.loop import PASSED_OVER_MAX, SimLoop
from kelpie.sim.loop.schedules import Fifo, Pct
from kelpie.sim.loop.simulation import simulate

SEEDS = range(20)


def test_a_day_passes_in_no_time_and_sleepers_wake_in_order() -> None:
    async def main(loop: SimLoop) -> list[tuple[str, int]]:
        woken: list[tuple[str, int]] = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append((name, round(loop.time())))

        async with asyncio.TaskGroup() as group:
            for name, seconds in (("day", 86400), ("hour", 3600), ("second", 1)):
                group.create_task(sleeper(name, seconds))
        return woken

    for seed in SEEDS:
        outcome = simulate(main, SimLoop(seed))
        assert outcome.get() == [("second", 1), ("hour", 3600), ("day", 86400)]


def test_what_asyncio_offers_works_under_every_policy() -> None:
    async def main(loop: SimLoop) -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        lock, event, order = asyncio.Lock(), asyncio.Event(), list[int]()

        async def produce() -> None:
            for number in range(50):
                await queue.put(number)
            event.set()

        async def consume() -> None:
            for _ in range(50):
                order.append(await queue.get())
                async with lock:
                    await asyncio.sleep(0)

        await asyncio.gather(produce(), consume(), event.wait())
        assert order == list(range(50))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        done, pending = await asyncio.wait([asyncio.ensure_future(asyncio.sleep(n, n)) for n in (1, 2, 3)], timeout=2.5)
        assert sorted(task.result() for task in done) == [1, 2]
        for task in pending:
            task.cancel()
        assert await asyncio.to_thread(sum, [1, 2]) == 3
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        with pytest.raises(ExceptionGroup):
            await _one_fails_all_end()
        assert loop.time() < 100

    for seed in SEEDS:
        loop = SimLoop(seed)
        simulate(main, loop).get()
        assert loop.unhandled == []


async def _one_fails_all_end() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(1000))
        group.create_task(_raise(ValueError("one fails")))


async def _raise(error: Exception) -> None:
    raise error


def test_nothing_ready_and_no_timer_is_a_deadlock_that_names_who_waits() -> None:
    async def main(loop: SimLoop) -> None:
        async def waits_for_ever() -> None:
            await asyncio.Event().wait()

        await asyncio.gather(asyncio.create_task(waits_for_ever(), name="the-one"))

    error = simulate(main).error
    assert isinstance(error, Deadlock)
    assert "the-one" in str(error) and "locks.py" in str(error)


def test_two_locks_in_opposite_order_are_found() -> None:
    async def main(loop: SimLoop) -> None:
        one, two = asyncio.Lock(), asyncio.Lock()

        async def take(first: asyncio.Lock, second: asyncio.Lock) -> None:
            async with first:
                await asyncio.sleep(0)
                async with second:
                    await asyncio.sleep(0)

        await asyncio.gather(take(one, two), take(two, one))

    errors = [type(simulate(main, SimLoop(seed)).error) for seed in SEEDS]
    assert Deadlock in errors


def test_a_run_is_bounded_in_callbacks_and_in_time() -> None:
    async def spin(loop: SimLoop) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def doze(loop: SimLoop) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(60)

    assert isinstance(simulate(spin, SimLoop(picks_max=1000)).error, OutOfBounds)
    assert isinstance(simulate(doze, SimLoop(virtual_s_max=3600)).error, OutOfBounds)


def test_a_busy_loop_does_not_stop_the_clock() -> None:
    async def main(loop: SimLoop) -> None:
        async with asyncio.timeout(0.01):
            while True:  # noqa: ASYNC110
                await asyncio.sleep(0)

    assert isinstance(simulate(main).error, TimeoutError)


def test_no_policy_starves_anybody_for_ever() -> None:
    async def main(loop: SimLoop) -> int:
        stop = False
        turns = 0

        async def spin() -> None:
            nonlocal turns
            while not stop:
                turns += 1
                await asyncio.sleep(0)

        async def end() -> None:
            nonlocal stop
            stop = True

        await asyncio.gather(*(spin() for _ in range(3)), end())
        return turns

    for seed in SEEDS:
        loop = SimLoop(seed)
        loop.policy = Pct(loop.rng("schedule"), depth=1, horizon=10)
        assert simulate(main, loop).get() <= 10 * PASSED_OVER_MAX


def test_sets_of_tasks_and_futures_have_one_order() -> None:
    async def main(loop: SimLoop) -> list[int]:
        tasks = {asyncio.ensure_future(asyncio.sleep(0, number)) for number in range(40)}
        futures = {loop.create_future() for _ in range(40)}
        assert sorted(map(hash, futures)) == [hash(future) for future in sorted(futures, key=hash)]
        return [await task for task in tasks]

    assert len({tuple(simulate(main, SimLoop(policy=Fifo())).get()) for _ in range(5)}) == 1


def test_task_names_do_not_depend_on_earlier_runs() -> None:
    async def main(loop: SimLoop) -> str:
        task = asyncio.create_task(asyncio.sleep(0))
        await task
        return task.get_name()

    assert simulate(main).get() == simulate(main).get()


@pytest.mark.parametrize(
    "reach_out",
    [
        lambda loop: loop.create_connection(asyncio.Protocol, "localhost", 1),
        lambda loop: loop.getaddrinfo("localhost", 1),
        lambda loop: loop.sock_connect(socket.socket(), ("localhost", 1)),
        lambda loop: loop.subprocess_exec(asyncio.SubprocessProtocol, "true"),
        lambda loop: asyncio.create_subprocess_exec("true"),
    ],
)
def test_the_real_world_is_refused(reach_out: Any) -> None:
    async def main(loop: SimLoop) -> None:
        await reach_out(loop)

    assert isinstance(simulate(main).error, NotSimulated)


def test_a_thread_that_calls_in_is_refused() -> None:
    async def main(loop: SimLoop) -> list[BaseException]:
        caught: list[BaseException] = []

        def call_in() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except NotSimulated as error:
                caught.append(error)

        thread = threading.Thread(target=call_in)
        thread.start()
        thread.join()
        loop.call_soon_threadsafe(caught.append, NotSimulated("inline calls are fine"))
        await asyncio.sleep(1)
        return caught

    assert len(simulate(main).get()) == 2


def test_what_nobody_caught_is_reported() -> None:
    async def main(loop: SimLoop) -> None:
        asyncio.create_task(_raise(ValueError("nobody looks")))  # noqa: RUF006 - that is the point
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)
        loop.held()
        loop._tasks.clear()
        await asyncio.sleep(1)

    loop = SimLoop()
    simulate(main, loop).get()
    assert any("ZeroDivisionError" in text for text in loop.unhandled)
    assert any("nobody looks" in text for text in loop.unhandled)


def test_the_collector_is_off_during_a_run_and_on_afterwards() -> None:
    async def main(loop: SimLoop) -> bool:
        return gc.isenabled()

    assert gc.isenabled()
    assert simulate(main).get() is False
    assert gc.isenabled()


def test_an_abandoned_generator_is_closed_on_the_loop() -> None:
    async def main(loop: SimLoop) -> list[str]:
        seen: list[str] = []

        async def numbers() -> Any:
            try:
                for number in range(10):
                    yield number
            finally:
                await asyncio.sleep(1)
                seen.append("closed")

        async def take_one() -> None:
            async for _ in numbers():
                return

        await take_one()
        await asyncio.sleep(5)
        return seen

    assert simulate(main).get() == ["closed"]


def test_thousands_of_cancelled_timers_are_let_go_and_the_others_fire() -> None:
    async def main(loop: SimLoop) -> list[int]:
        fired: list[int] = []
        timers = [loop.call_later(number + 1, fired.append, number) for number in range(2000)]
        for number, timer in enumerate(timers):
            if number % 100:
                timer.cancel()
        assert len(loop._timers) < 500
        await asyncio.sleep(3000)
        return fired

    assert simulate(main).get() == list(range(0, 2000, 100))


def test_rng_streams_are_apart_and_repeatable() -> None:
    one, two = SimLoop(7), SimLoop(7)
    one.rng("a").random()
    assert one.rng("b").random() == two.rng("b").random()
    assert one.rng("a").random() != one.rng("b").random()
    assert SimLoop(8).rng("b").random() != one.rng("b").random()


def test_main_may_be_any_coroutine() -> None:
    def main(loop: SimLoop) -> Coroutine[Any, Any, str]:
        return asyncio.sleep(1, "slept")

    assert simulate(main).get() == "slept"
