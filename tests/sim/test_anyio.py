"""Starlette and FastAPI stand on anyio, so anyio must stand on this loop."""

import anyio
import pytest

from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.simulation import simulate


async def _use_anyio(loop: SimLoop) -> list[int]:
    received: list[int] = []
    send, receive = anyio.create_memory_object_stream[int](2)

    async def read() -> None:
        async with receive:
            async for number in receive:
                await anyio.sleep(0.1)
                received.append(number)

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        async with send:
            for number in range(10):
                await send.send(number)
    with anyio.move_on_after(5) as scope:
        await anyio.sleep(100)
    assert scope.cancelled_caught
    with pytest.raises(TimeoutError):
        with anyio.fail_after(1):
            await anyio.Event().wait()
    with anyio.CancelScope() as shielded:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 1000)
            await anyio.sleep(1)
            shielded.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3)
    return received


def test_anyio_works_under_every_policy() -> None:
    for seed in range(30):
        loop = SimLoop(seed)
        assert simulate(_use_anyio, loop).get() == list(range(10))
        assert loop.time() < 20
        assert loop.unhandled == []


def test_anyio_is_deterministic() -> None:
    for seed in range(10):
        assert len({simulate(_use_anyio, SimLoop(seed)).trace_hash for _ in range(3)}) == 1
