"""Periodic work: rounds, wake-ups, failures and cancellation."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kelpie.actors.periodic import PeriodicWorker
from kelpie.core.errors import KelpieError, StorageError

NEVER_S = 3600.0


class Rounds:
    """Work whose rounds are answered by a script; afterwards it has nothing to do for an hour."""

    def __init__(self, *script: float | Exception) -> None:
        self._script = list(script)
        self.begun = 0
        self.failures: list[KelpieError] = []
        self._changed = asyncio.Condition()

    async def __call__(self) -> float:
        self.begun += 1
        async with self._changed:
            self._changed.notify_all()
        answer = self._script.pop(0) if self._script else NEVER_S
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def reach(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.begun >= count)


@asynccontextmanager
async def running(
    work: Callable[[], Awaitable[float]], failures: list[KelpieError], retry_s: float = NEVER_S
) -> AsyncIterator[PeriodicWorker]:
    worker = PeriodicWorker(work, failed=failures.append, retry_s=retry_s)
    task = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(10):
            yield worker
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_first_round_starts_at_once_and_the_next_one_waits() -> None:
    rounds = Rounds()
    async with running(rounds, rounds.failures):
        await rounds.reach(1)
        await _settle()
        assert rounds.begun == 1


async def test_rounds_follow_each_other_while_there_is_more_to_do() -> None:
    rounds = Rounds(0.0, 0.0, 0.0)
    async with running(rounds, rounds.failures):
        await rounds.reach(4)
        await _settle()
        assert rounds.begun == 4


async def test_the_timeout_starts_the_next_round() -> None:
    rounds = Rounds(0.001, 0.001)
    async with running(rounds, rounds.failures):
        await rounds.reach(3)


async def test_a_wake_up_ends_the_wait_and_many_count_as_one() -> None:
    rounds = Rounds()
    async with running(rounds, rounds.failures) as worker:
        await rounds.reach(1)
        await _settle()
        worker.wake()
        worker.wake()
        await rounds.reach(2)
        await _settle()
        assert rounds.begun == 2


async def test_a_wake_up_during_a_round_is_not_lost() -> None:
    began, may_end, count = asyncio.Event(), asyncio.Event(), 0

    async def work() -> float:
        nonlocal count
        count += 1
        began.set()
        await may_end.wait()
        return NEVER_S

    async with running(work, []) as worker:
        await began.wait()
        worker.wake()
        began.clear()
        may_end.set()
        await began.wait()
        await _settle()
        assert count == 2


async def test_a_failure_is_reported_and_followed_by_another_round() -> None:
    failure = StorageError("the disk is full")
    rounds = Rounds(failure)
    async with running(rounds, rounds.failures, retry_s=0.001):
        await rounds.reach(2)
    assert rounds.failures == [failure]


async def test_a_wake_up_ends_the_wait_after_a_failure() -> None:
    rounds = Rounds(StorageError("the disk is full"))
    async with running(rounds, rounds.failures) as worker:
        await rounds.reach(1)
        await _settle()
        assert rounds.begun == 1
        worker.wake()
        await rounds.reach(2)


async def test_a_bug_ends_the_loop() -> None:
    rounds = Rounds(KeyError("a bug"))
    worker = PeriodicWorker(rounds, failed=rounds.failures.append, retry_s=NEVER_S)
    with pytest.raises(KeyError):
        await worker.run()
    assert rounds.failures == []


async def test_work_that_never_waits_leaves_the_event_loop_to_others() -> None:
    rounds = 0

    async def work() -> float:
        nonlocal rounds
        rounds += 1
        return 0.0

    async with running(work, []):
        await _settle()
        assert rounds > 3


async def test_cancelling_ends_a_round_that_is_running() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def work() -> float:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return NEVER_S

    async with running(work, []):
        await began.wait()
    assert ended.is_set()
