"""Places for jobs: bounded, and never all held by those who wait for others to get one."""

import asyncio

import pytest

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import ToolError
from kelpie.fairness.organization_share import OrganizationShare
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


async def test_the_memory_of_all_jobs_together_is_bounded_and_each_level_has_its_own() -> None:
    places, other = JobSlots(9, 9, memory_bytes=1000), Consumer("org-2")
    async with asyncio.timeout(DEADLINE_S):
        await places.take(0, WHO, 300)
        late = asyncio.create_task(places.take(0, other, 300))
        await asyncio.sleep(0)
        assert not late.done(), "half of it is for the lowest level"
        await places.take(1, WHO, 250)
        await places.take(2, WHO, 900)  # alone on its level, it fits
        places.give_back(0, WHO, 300)
        await late
    assert places.waiting == 0


async def test_an_organization_with_its_share_keeps_memory_for_others() -> None:
    places, other = JobSlots(9, 9, 800, OrganizationShare(0.75, organizations=2)), Consumer("org-2")
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(3):
            await places.take(0, WHO, 100)
        late = asyncio.create_task(places.take(0, WHO, 100))
        await asyncio.sleep(0)
        assert not late.done()
        await places.take(0, other, 100)
        places.give_back(0, WHO, 100)
        await asyncio.sleep(0)
        assert not late.done(), "it has two thirds of what the other leaves, and would have all"
        places.give_back(0, WHO, 100)
        await late
