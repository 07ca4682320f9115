"""A crash is a power cut: no `finally`, no farewell, nothing of the node ever runs again."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.node import Node, current_node
from kelpie.sim.loop.simulation import simulate

SEEDS = range(20)


def test_no_finally_runs_and_nothing_is_cancelled() -> None:
    async def main(loop: SimLoop) -> list[str]:
        log: list[str] = []
        node = Node("n")
        gate = asyncio.Event()

        @asynccontextmanager
        async def resource() -> AsyncIterator[None]:
            try:
                yield
            finally:
                log.append("context closed")

        async def generate() -> AsyncIterator[int]:
            try:
                for number in range(10):
                    yield number
                    await gate.wait()
            finally:
                log.append("generator closed")

        async def child() -> None:
            try:
                async with asyncio.timeout(10), resource():
                    async for _ in generate():
                        pass
            except BaseException as error:
                log.append(f"caught {type(error).__name__}")
                raise
            finally:
                log.append("finally")

        async def work() -> None:
            assert current_node.get() is node
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(child())
                group.create_task(asyncio.sleep(3))

        loop.create_task(work(), context=node.context())
        await asyncio.sleep(1)
        node.crash()
        gate.set()  # what they waited for comes too late
        await asyncio.sleep(100)
        assert node.died.is_set()
        return list(log)

    for seed in SEEDS:
        loop = SimLoop(seed)
        assert simulate(main, loop).get() == []
        assert loop.unhandled == []


def test_timers_of_the_dead_neither_fire_nor_move_the_clock() -> None:
    async def main(loop: SimLoop) -> list[str]:
        fired: list[str] = []
        node = Node("n")
        loop.call_later(1000, fired.append, "dead", context=node.context())
        loop.call_later(2, fired.append, "alive")
        node.crash()
        await asyncio.sleep(3)
        return fired

    outcome = simulate(main)
    assert outcome.get() == ["alive"]
    assert outcome.virtual_s < 4


def test_the_living_go_on_and_are_told() -> None:
    async def main(loop: SimLoop) -> list[str]:
        told: list[str] = []
        one, two = Node("one"), Node("two")
        one.at_death(lambda: told.append("one died"))

        async def tick(name: str) -> None:
            while True:
                await asyncio.sleep(1)
                told.append(name)

        loop.create_task(tick("one"), context=one.context())
        loop.create_task(tick("two"), context=two.context())
        await asyncio.sleep(1.5)
        one.crash()
        one.crash()  # twice is once
        await asyncio.sleep(1)
        return sorted(told)

    assert simulate(main).get() == ["one", "one died", "two", "two"]


def test_a_crash_leaves_no_noise_behind(recwarn: pytest.WarningsRecorder, capsys: pytest.CaptureFixture[str]) -> None:
    """Coroutines that never started, and ones that would wait in their `finally`, are disposed of quietly."""

    async def main(loop: SimLoop) -> None:
        node = Node("n")

        async def stubborn() -> None:
            while True:
                try:
                    await asyncio.sleep(1)
                finally:
                    print("a dead node speaks", file=sys.stderr)
                    await asyncio.sleep(1)
                    asyncio.create_task(asyncio.sleep(1))  # noqa: RUF006

        for _ in range(5):
            loop.create_task(stubborn(), context=node.context())
        await asyncio.sleep(0.5)
        for _ in range(5):
            loop.create_task(stubborn(), context=node.context())
        loop.call_later(0.1, loop.create_task, stubborn(), context=node.context())
        node.crash()
        await asyncio.sleep(1)

    for seed in SEEDS:
        simulate(main, SimLoop(seed)).get()
    assert list(recwarn) == []
    assert "".join(capsys.readouterr()) == ""
