"""A block that is broken off from outside."""

import asyncio

import pytest

from kelpie.actors.interruption import Interruption


async def wait_in(block: Interruption, entered: asyncio.Event) -> str:
    with block:
        entered.set()
        await asyncio.Event().wait()
    await asyncio.sleep(0)  # the task is well again: nothing of the cancellation is left
    return "went on"


async def begin() -> tuple[Interruption, asyncio.Task[str]]:
    block, entered = Interruption(), asyncio.Event()
    task = asyncio.create_task(wait_in(block, entered))
    await entered.wait()
    return block, task


async def test_an_interrupted_block_ends_and_its_task_goes_on():
    block, task = await begin()
    block.interrupt()
    block.interrupt()
    assert await task == "went on"
    assert block.interrupted and not task.cancelling()


async def test_a_task_that_is_cancelled_as_well_is_cancelled():
    block, task = await begin()
    block.interrupt()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_task_is_no_interrupted_block():
    block, task = await begin()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not block.interrupted


async def test_a_word_that_comes_too_late_does_nothing():
    with Interruption() as block:
        pass
    block.interrupt()
    await asyncio.sleep(0)
    assert not block.interrupted


async def test_an_error_of_the_block_is_raised():
    with pytest.raises(ValueError, match="own"), Interruption():
        raise ValueError("own")
