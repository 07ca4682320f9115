"""Searches run one after the other; one that takes long keeps others only for a while."""

import asyncio

import pytest

from kelpie.core.access.consumers import Consumer
from kelpie.memory import search_slots
from kelpie.memory.search_slots import SearchSlots

DEADLINE_S = 30.0
FOR_EVER_S = 3600.0
ONE = Consumer("org-1")


class Search:
    """A search that holds a slot until it is told to end."""

    def __init__(self, slots: SearchSlots, who: Consumer = ONE) -> None:
        self.begun, self.end = asyncio.Event(), asyncio.Event()
        self._who = who
        self.task = asyncio.create_task(self._run(slots))

    async def _run(self, slots: SearchSlots) -> None:
        async with slots.slot(self._who):
            self.begun.set()
            await self.end.wait()

    async def begins(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self.begun.wait()

    async def ends(self) -> None:
        self.end.set()
        async with asyncio.timeout(DEADLINE_S):
            await self.task


async def settled() -> None:
    """Lets everybody do what can be done without time going by."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_next_begins_when_the_one_before_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_slots, "LONG_S", FOR_EVER_S)
    slots = SearchSlots()
    searches = [Search(slots) for _ in range(4)]
    for at, search in enumerate(searches):
        await search.begins()
        await settled()
        assert not any(each.begun.is_set() for each in searches[at + 1 :])
        await search.ends()


async def test_one_more_begins_beside_a_search_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_slots, "LONG_S", 0.001)
    slots = SearchSlots()
    long, *others = [Search(slots) for _ in range(4)]
    for at, search in enumerate(others):
        await search.begins()
        await settled()
        assert not any(each.begun.is_set() for each in others[at + 1 :])
        await search.ends()
    await long.ends()


async def test_a_cancelled_waiter_takes_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_slots, "LONG_S", FOR_EVER_S)
    slots = SearchSlots()
    first, *waiting = [Search(slots) for _ in range(4)]
    await first.begins()
    for each in waiting:
        each.task.cancel()
    await asyncio.gather(*(each.task for each in waiting), return_exceptions=True)
    await first.ends()
    for _ in range(3):
        last = Search(slots)
        await last.begins()
        await last.ends()


async def test_organizations_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_slots, "LONG_S", FOR_EVER_S)
    slots = SearchSlots()
    many = [Search(slots) for _ in range(9)]
    await many[0].begins()
    await settled()
    other = Search(slots, Consumer("org-2"))
    await settled()
    await many[0].ends()
    await other.begins()
    assert sum(each.begun.is_set() for each in many) == 1
    await other.ends()
    for each in many[1:]:
        await each.ends()
