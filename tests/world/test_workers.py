"""Worker processes: limits of time and memory, replacement after a crash, turns between owners, no process left."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from kelpie.core.errors import Overloaded
from kelpie.world.workers.port import WorkerFailed, WorkerFault, WorkerLimits, WorkerProgram
from kelpie.world.workers.processes import ProcessWorkers

PROGRAM = WorkerProgram("tests.world.worker_sample", cpu_s=1, memory_bytes=256 * 1024 * 1024)


@pytest.fixture
async def workers() -> AsyncIterator[ProcessWorkers]:
    found = ProcessWorkers(WorkerLimits(processes_max=1, waiting_max=2))
    yield found
    await found.close()


async def test_a_process_answers_several_requests_and_is_ended_with_the_server(workers: ProcessWorkers) -> None:
    ours = bytearray(b"x" * (200 * 1024 * 1024))  # the size of the server is not the size of its workers
    first, second = [await workers.ask(PROGRAM, b"pid", "a") for _ in range(2)]
    del ours
    assert first == second != str(os.getpid()).encode()
    assert await workers.ask(PROGRAM, b"echo" + b"x" * 3_000_000, "a") == b"x" * 3_000_000
    await workers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)
    with pytest.raises(WorkerFailed):
        await workers.ask(PROGRAM, b"pid", "a")


@pytest.mark.parametrize(
    ("request_", "fault"),
    [(b"spin", WorkerFault.time), (b"grow", WorkerFault.memory), (b"die", WorkerFault.crash)],
)
async def test_a_request_beyond_its_limits_costs_only_its_process(
    workers: ProcessWorkers, request_: bytes, fault: WorkerFault
) -> None:
    before = await workers.ask(PROGRAM, b"pid", "a")
    with pytest.raises(WorkerFailed) as caught:
        await workers.ask(PROGRAM, request_, "a")
    assert caught.value.fault is fault
    assert await workers.ask(PROGRAM, b"pid", "a") != before


async def test_a_process_that_has_grown_is_replaced(workers: ProcessWorkers) -> None:
    before = await workers.ask(PROGRAM, b"pid", "a")
    assert await workers.ask(PROGRAM, b"swell", "a") == b"done"
    assert await workers.ask(PROGRAM, b"pid", "a") != before


async def test_it_gets_neither_settings_nor_files_to_write(
    workers: ProcessWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert b"OPENAI" not in await workers.ask(PROGRAM, b"env", "a")
    assert await workers.ask(PROGRAM, b"write", "a") == b"File too large"


async def test_owners_take_turns_and_each_has_a_bounded_queue(workers: ProcessWorkers) -> None:
    done: list[str] = []

    async def ask(owner: str) -> None:
        await workers.ask(PROGRAM, b"pid", owner)
        done.append(owner)

    many = [asyncio.create_task(ask("a")) for _ in range(3)]
    await asyncio.sleep(0)
    other = asyncio.create_task(ask("b"))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await ask("a")
    await asyncio.gather(*many, other)
    assert done.index("b") <= 1  # behind the one that runs, ahead of those that wait


async def test_who_goes_away_leaves_no_process_busy(workers: ProcessWorkers) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await workers.ask(PROGRAM, b"spin", "a")
    assert not workers.busy
    assert await workers.ask(PROGRAM, b"pid", "a")
