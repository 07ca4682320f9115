"""Places for jobs: bounded, and never all held by those who wait for others to get one."""

import asyncio

import pytest

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import ToolError
from kelpie.sandbox.slots import JobSlots

DEADLINE_S = 60.0
WHO = Consumer("org-1", "agent-1")


async def test_code_that_is_called_by_code_finds_a_place_though_callers_hold_all_others() -> None:
    places = JobSlots(2, 1)
    async with asyncio.timeout(DEADLINE_S):
        for level in (0, 0, 1, 2, 16):
            await places.take(level, WHO, 1)
        late = asyncio.create_task(places.take(0, WHO, 1))
        await asyncio.sleep(0)
        assert not late.done() and places.waiting == 1
        with pytest.raises(ToolError, match="the sandbox is busy"):
            await places.take(0, WHO, 1)
        places.give_back(1, WHO, 1)
        await asyncio.sleep(0)
        assert not late.done(), "a place of another level is none of its own"
        places.give_back(0, WHO, 1)
        await late
    assert places.waiting == 0
