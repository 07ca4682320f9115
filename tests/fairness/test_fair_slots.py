"""Fair slots: who is next, what one organization may hold, and that no slot is ever lost."""

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import Overloaded
from kelpie.fairness import fair_queue
from kelpie.fairness.fair_queue import FairQueue
from kelpie.fairness.fair_slots import FairSlots, SlotLimits
from kelpie.fairness.organization_share import OrganizationShare
from tests.llm.test_retry import in_virtual_time, now

LIMITS = SlotLimits("search_queue_full", "place", 1, waiting_max=100, wait_s=1000.0)
ANN, ANNE, BOB, CARL = Consumer("A", "ann"), Consumer("A", "anne"), Consumer("B", "bob"), Consumer("C", "carl")


async def job(slots: FairSlots, who: Consumer, log: list[Consumer], lasts_s: float = 1.0, amount: int = 0) -> None:
    async with slots.slot(who, amount):
        log.append(who)
        await asyncio.sleep(lasts_s)


async def begun() -> None:
    """Lets every task come to the point where it waits for time to go by."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_organizations_take_turns_then_agents_and_each_keeps_its_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for who, item in ((ANN, "a1"), (ANN, "a2"), (ANN, "a3"), (BOB, "b1"), (ANNE, "e1"), (CARL, "c1"), (BOB, "b2")):
        queue.add(who, item)
    assert (len(queue), queue.count("A"), queue.count("Z")) == (7, 4, 0)
    order: list[str] = []
    while len(queue):
        who, item = next(iter(queue.next_of_each()))
        queue.serve(who, item)
        order.append(item)
    assert order == ["a1", "b1", "c1", "e1", "b2", "a2", "a3"]


def test_who_leaves_changes_nobodys_turn() -> None:
    queue: FairQueue[str] = FairQueue()
    for who, item in ((ANN, "a1"), (BOB, "b1"), (BOB, "b2"), (CARL, "c1")):
        queue.add(who, item)
    queue.remove(ANN, "a1")
    queue.remove(BOB, "b1")
    assert [item for _, item in queue.next_of_each()] == ["b2", "c1"]


def test_so_many_turns_are_remembered_and_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "REMEMBERED_MAX", 4)  # two organizations, and an agent of each
    queue: FairQueue[str] = FairQueue()
    for who in (ANN, BOB, ANN, CARL):
        queue.record_turn(who)
    for who in (ANN, BOB, CARL, Consumer("D", "dora")):
        queue.add(who, who.agent)
    assert [item for _, item in queue.next_of_each()] == ["bob", "dora", "ann", "carl"]


async def test_a_free_slot_is_taken_without_giving_way_to_another_task() -> None:
    slots, others = FairSlots(LIMITS, OrganizationShare(organizations=2)), list[str]()
    asyncio.get_running_loop().call_soon(others.append, "another")
    await slots.take(ANN)
    assert slots.running == 1 and not others


def test_one_that_floods_delays_another_by_one_turn() -> None:
    async def main() -> list[Consumer]:
        slots, log = FairSlots(LIMITS), list[Consumer]()
        jobs = [asyncio.ensure_future(job(slots, ANN, log)) for _ in range(48)]
        await asyncio.sleep(0.5)
        await job(slots, BOB, log)
        assert now() == 2, "the job that ran already, and its own"
        await asyncio.gather(*jobs)
        return log

    assert in_virtual_time(main).index(BOB) == 1


def test_jobs_of_one_that_never_end_leave_slots_for_others() -> None:
    async def main() -> None:
        slots, log = FairSlots(replace(LIMITS, slots=16), OrganizationShare(0.75, organizations=4)), list[Consumer]()
        naps: list[asyncio.Task[None]] = []
        for who in (ANN, BOB, CARL):
            naps += [asyncio.ensure_future(job(slots, who, log, 900.0)) for _ in range(20)]
            await begun()
        assert Counter(log) == {ANN: 12, BOB: 3, CARL: 1}
        assert not slots.has_room("A") and slots.held_by("A") == 12 and slots.waiting == 60 - 16
        for nap in naps:
            nap.cancel()
        await asyncio.gather(*naps, return_exceptions=True)
        assert slots.running == slots.waiting == 0

    in_virtual_time(main)


def test_alone_on_a_server_an_organization_has_all_slots() -> None:
    async def main() -> None:
        slots, log = FairSlots(replace(LIMITS, slots=4), OrganizationShare(0.75, organizations=1)), list[Consumer]()
        await asyncio.gather(*(job(slots, ANN, log) for _ in range(4)))
        assert now() == 1

    in_virtual_time(main)


def test_with_a_second_organization_there_is_a_share() -> None:
    async def main() -> None:
        slots = FairSlots(replace(LIMITS, slots=4), OrganizationShare(0.75, organizations=2))
        assert [slots.take_now(ANN) for _ in range(4)] == [True, True, True, False]
        assert slots.has_room("B") and not slots.has_room("A"), "one is free, for others"
        assert slots.take_now(BOB) and not slots.has_room("B")

    in_virtual_time(main)


def test_what_was_given_back_is_no_part_of_an_organizations_share_of_the_amount() -> None:
    async def main() -> None:
        slots = FairSlots(replace(LIMITS, slots=9, amount=100), OrganizationShare(0.75, organizations=2))
        assert slots.take_now(ANN, 10) and slots.take_now(ANN, 40)
        assert not slots.take_now(ANN, 26), "more than three quarters"
        slots.give_back(ANN, 40)
        assert slots.take_now(ANN, 65) and not slots.take_now(ANN, 1)

    in_virtual_time(main)


def test_a_large_one_waits_behind_its_own_organization_only() -> None:
    async def main() -> None:
        slots = FairSlots(replace(LIMITS, slots=9, amount=100))
        await slots.take(ANN, 50)
        async with slots.slot(BOB):  # so that it is A's turn
            pass
        large = asyncio.ensure_future(slots.take(ANN, 90))
        await begun()
        await slots.take(BOB, 10)
        assert now() == 0 and not large.done()
        slots.give_back(ANN, 50)
        await large
        assert (slots.held_by("A"), slots.held_by("B")) == (1, 1)

    in_virtual_time(main)


@pytest.mark.parametrize("late", [True, False])
def test_a_slot_that_comes_in_the_last_moment_is_taken(*, late: bool) -> None:
    async def main() -> None:
        slots = FairSlots(replace(LIMITS, wait_s=10.0))
        await slots.take(ANN)
        loop = asyncio.get_running_loop()
        if not late:
            loop.call_at(10.0, slots.give_back, ANN)
        waiting = asyncio.ensure_future(slots.take(BOB))
        await begun()
        if late:  # the limit of the wait is over already, and the one that waits has not heard of it
            loop.call_at(10.0, slots.give_back, ANN)
        await waiting
        assert (slots.held_by("A"), slots.held_by("B"), slots.running, slots.waiting) == (0, 1, 1, 0)
        slots.give_back(BOB)
        assert slots.running == 0 and slots.take_now(ANN)

    in_virtual_time(main)


def test_a_sum_of_amounts_is_bounded_and_a_large_one_is_not_passed_for_ever() -> None:
    async def main() -> None:
        slots, log = FairSlots(replace(LIMITS, slots=9, amount=100)), list[Consumer]()
        small = [asyncio.ensure_future(job(slots, ANN, log, 1.0, 40)) for _ in range(30)]
        await asyncio.sleep(0.5)
        large = asyncio.ensure_future(job(slots, BOB, log, 1.0, 90))
        await large
        assert now() == 2 and log[:3] == [ANN, ANN, BOB]
        await asyncio.gather(*small)
        await job(slots, CARL, log, 1.0, 500)  # alone, it fits

    in_virtual_time(main)


def test_a_large_one_that_gives_up_no_longer_keeps_others_waiting() -> None:
    async def main() -> None:
        slots, log = FairSlots(replace(LIMITS, slots=9, amount=100)), list[Consumer]()
        first = asyncio.ensure_future(job(slots, ANN, log, 100.0, 60))
        await begun()
        large = asyncio.ensure_future(job(slots, BOB, log, 1.0, 90))
        await begun()
        behind = asyncio.ensure_future(job(slots, CARL, log, 1.0, 10))
        await begun()
        assert log == [ANN]
        large.cancel()
        await behind
        assert now() == 1
        await first

    in_virtual_time(main)


def test_waiting_is_bounded_in_number_for_each_organization_and_in_time() -> None:
    async def main() -> None:
        slots, log = FairSlots(replace(LIMITS, waiting_max=2, wait_s=10.0)), list[Consumer]()
        jobs = [asyncio.ensure_future(job(slots, ANN, log, 100.0)) for _ in range(3)]
        await begun()
        with pytest.raises(Overloaded, match="2 calls of this organization are already waiting for a free place"):
            await slots.take(ANNE)
        with pytest.raises(Overloaded, match="no place was free within 10 s"):
            await slots.take(BOB)
        assert now() == 10
        ended = await asyncio.gather(*jobs, return_exceptions=True)
        assert sum(isinstance(each, Overloaded) for each in ended) == 2 and slots.waiting == slots.running == 0

    in_virtual_time(main)


@pytest.mark.parametrize("others", [0, 2])
async def test_a_slot_that_is_granted_to_who_is_being_cancelled_goes_to_the_next(others: int) -> None:
    slots = FairSlots(replace(LIMITS, amount=50))
    await slots.take(ANN, 20)
    waits = [asyncio.ensure_future(slots.take(who, 30)) for who in (BOB, *(CARL, ANNE)[:others])]
    await begun()
    waits[0].cancel()
    slots.give_back(ANN, 20)  # before the one that is cancelled runs again
    with pytest.raises(asyncio.CancelledError):
        await waits[0]
    for wait, who in zip(waits[1:], (CARL, ANNE), strict=False):
        async with asyncio.timeout(20):
            await wait
        assert (slots.running, slots.held_by(who.organization)) == (1, 1)
        slots.give_back(who, 30)
    assert slots.running == slots.waiting == 0 and not any(slots.held_by(each) for each in "ABC")
    assert slots.take_now(ANN, 50), "all of the amount is free"


@pytest.mark.parametrize("seed", range(20))
def test_cancelled_jobs_lose_no_slot_and_nobody_is_passed_twice(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        slots = FairSlots(replace(LIMITS, slots=3, amount=50), OrganizationShare(0.75, organizations=3))
        log: list[Consumer] = []
        tasks: list[asyncio.Task[None]] = []
        for _ in range(80):
            work = job(slots, rng.choice((ANN, ANNE, BOB, CARL)), log, rng.random(), rng.randrange(20))
            tasks.append(asyncio.ensure_future(work))
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() / 4)
            if rng.random() < 0.4:
                rng.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert slots.running == slots.waiting == 0
        assert not any(slots.held_by(each) for each in "ABC")
        began = now()
        await asyncio.gather(*(job(slots, who, log, amount=16) for who in (ANN, BOB, CARL)))
        assert now() == pytest.approx(began + 1), "all slots and all of the amount are free"

    in_virtual_time(main)


def test_fewer_slots_take_nothing_from_who_has_one() -> None:
    async def main() -> None:
        slots, log = FairSlots(replace(LIMITS, slots=2)), list[Consumer]()
        jobs = [asyncio.ensure_future(job(slots, who, log)) for who in (ANN, BOB, CARL)]
        await begun()
        slots.resize(1)
        assert slots.running == 2
        await asyncio.gather(*jobs)
        assert log == [ANN, BOB, CARL] and now() == 2

    in_virtual_time(main)


def test_one_more_slot_is_for_who_waits() -> None:
    async def main() -> None:
        slots, log = FairSlots(LIMITS), list[Consumer]()
        jobs = [asyncio.ensure_future(job(slots, who, log)) for who in (ANN, BOB)]
        await begun()
        slots.resize(2)
        await asyncio.gather(*jobs)
        assert now() == 1

    in_virtual_time(main)
