"""Processor time: what each organization may use of it, and that requests behave as they would without a measure."""

import asyncio
from collections import Counter

import pytest

from kelpie.core.errors import Overloaded
from kelpie.fairness.processor_time import ACTIVE_NS, SECOND_NS, ProcessorTime, Usage, current_usage
from tests.llm.test_retry import in_virtual_time

STEP_NS = SECOND_NS // 1000


class Processor:
    """A processor on which the requests of a test run: time goes by while it works and while everyone waits."""

    def __init__(self) -> None:
        self.worked = 0
        self.used: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def now(self) -> int:
        return int(asyncio.get_running_loop().time() * SECOND_NS) + self.worked

    def work(self, organization: str) -> None:
        self.worked += STEP_NS
        self.used[organization] += STEP_NS

    async def request(self, organization: str) -> None:
        self.work(organization)
        await asyncio.sleep(0.02)
        self.work(organization)
        await asyncio.sleep(0)
        self.work(organization)

    async def client(self, time: ProcessorTime, organization: str, until: int, pause_s: float = 0.0) -> None:
        while self.now() < until:
            usage = await time.admit(organization)
            await (self.request(organization) if usage is None else usage.run(self.request(organization)))
            self.answered[organization] += 1
            await asyncio.sleep(pause_s)

    async def load(self, fraction: float, clients: dict[str, int], pause_s: float = 0.0, seconds: int = 20) -> float:
        """Runs clients of organizations and returns the share of the time that they used."""
        started, time = self.now(), ProcessorTime(self.now, fraction)
        until = started + seconds * SECOND_NS
        async with asyncio.TaskGroup() as group:
            for organization, count in clients.items():
                for _ in range(count):
                    group.create_task(self.client(time, organization, until, pause_s if count == 1 else 0.0))
        return sum(self.used.values()) / (self.now() - started)


def test_an_organization_that_is_alone_is_not_slowed_down() -> None:
    async def alone() -> None:
        assert await Processor().load(0.5, {"A": 40}) > 0.8

    in_virtual_time(alone)


def test_a_busy_organization_leaves_time_for_one_that_does_little() -> None:
    async def beside() -> None:
        processor = Processor()
        used = await processor.load(0.75, {"A": 40, "B": 1}, pause_s=0.1)
        assert 0.65 < used < 0.85
        assert processor.used["A"] > 10 * processor.used["B"]  # which needs no more; what it leaves is not wasted

    in_virtual_time(beside)


def test_two_busy_organizations_have_equal_parts_however_many_clients_they_have() -> None:
    async def both() -> None:
        processor = Processor()
        await processor.load(0.75, {"A": 100, "B": 20})
        assert 0.8 < processor.used["A"] / processor.used["B"] < 1.25

    in_virtual_time(both)


def test_an_organization_that_became_inactive_holds_nobody_back() -> None:
    async def later() -> None:
        processor = Processor()
        time = ProcessorTime(processor.now, 0.75)
        assert await time.admit("B") is None
        assert isinstance(await time.admit("A"), Usage)
        processor.worked += 2 * ACTIVE_NS
        assert await time.admit("A") is None

    in_virtual_time(later)


def test_a_request_that_would_wait_too_long_is_refused_with_the_time_to_wait() -> None:
    async def flooded() -> None:
        processor = Processor()
        time = ProcessorTime(processor.now, 0.5)
        await time.admit("B")
        asked = [asyncio.create_task(time.admit("A")) for _ in range(20_000)]
        await asyncio.sleep(0)
        refused = next(task for task in asked if task.done() and task.exception() is not None)
        with pytest.raises(Overloaded, match=r"processor time. Try again in 30 s") as refusal:
            await refused
        assert 30 < refusal.value.retry_after_s < 31
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(await time.admit("A"), Usage)  # nobody pays for a request that never ran

    in_virtual_time(flooded)


def test_a_measured_request_returns_raises_and_is_cancelled_as_an_unmeasured_one() -> None:
    async def measured() -> None:
        processor = Processor()
        time = ProcessorTime(processor.now, 0.75)
        await time.admit("B")

        async def usage() -> Usage:
            found = await time.admit("A")
            assert found is not None
            return found

        async def seven() -> int:
            assert current_usage() is not None
            await asyncio.sleep(0)
            return 7

        async def failing() -> None:
            await asyncio.sleep(0)
            raise ValueError("seven")

        cleaned: list[str] = []

        async def endless() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append("up")

        assert await (await usage()).run(seven()) == 7
        assert current_usage() is None
        with pytest.raises(ValueError, match="seven"):
            await (await usage()).run(failing())
        task = asyncio.create_task((await usage()).run(endless()))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == ["up"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await (await usage()).run(endless())

    in_virtual_time(measured)


class Charges:
    """One organization beside another, and the wait that it has to pay for now, in milliseconds of its share."""

    def __init__(self) -> None:
        self.processor = Processor()
        self.time = ProcessorTime(self.processor.now, 0.5)

    async def admitted(self, organization: str = "A") -> Usage:
        found = await self.time.admit(organization)
        assert found is not None
        return found

    @property
    def owed_ms(self) -> float:
        account = self.time._accounts["A"]
        return round((account.free_at - self.processor.now()) * account.rate / STEP_NS, 3)


def test_what_was_charged_ahead_is_given_back_where_it_was_not_used() -> None:
    async def nothing() -> None:
        return

    async def main() -> None:
        charges = Charges()
        await charges.time.admit("B")
        usage = await charges.admitted()
        assert charges.owed_ms == 2, "what a request usually costs"
        await usage.run(nothing())
        assert charges.owed_ms == 0
        usage.add(5 * STEP_NS)  # a job that it has begun
        assert charges.owed_ms == 5, "all of it: what was charged ahead was given back"

    in_virtual_time(main)


def test_a_step_that_is_cancelled_while_it_waits_for_its_share_costs_nothing() -> None:
    async def main() -> None:
        charges = Charges()
        await charges.time.admit("B")
        usage = await charges.admitted()
        usage.add(1002 * STEP_NS)
        before = charges.owed_ms
        for _ in range(10):
            waiting = asyncio.create_task(usage.pace())
            await asyncio.sleep(0)
            assert charges.owed_ms > before
            waiting.cancel()
            await asyncio.wait((waiting,))
        assert charges.owed_ms == before

    in_virtual_time(main)


def test_a_request_costs_ahead_what_the_last_ones_cost() -> None:
    async def main() -> None:
        charges = Charges()
        await charges.time.admit("B")

        async def works() -> None:
            for _ in range(50):
                charges.processor.work("A")

        for _ in range(30):
            await (await charges.admitted()).run(works())
        charges.processor.worked += 10_000 * STEP_NS  # all is paid for
        await charges.admitted()
        assert 45 < charges.owed_ms < 50

    in_virtual_time(main)


def test_time_that_was_not_used_is_not_saved_up() -> None:
    async def main() -> None:
        charges = Charges()
        await charges.time.admit("B")
        charges.processor.worked += 100 * STEP_NS  # within the time over which use is measured
        await charges.admitted()
        assert charges.owed_ms == 2

    in_virtual_time(main)


def test_what_is_owed_stays_the_same_when_the_shares_change() -> None:
    async def main() -> None:
        charges = Charges()
        for each in ("B", "C", "D"):
            await charges.time.admit(each)
        usage = await charges.admitted()
        usage.add(30 * STEP_NS)
        rate, owed = charges.time._accounts["A"].rate, charges.owed_ms
        charges.processor.worked += 1
        charges.time._divide(charges.processor.now())
        assert charges.time._accounts["A"].rate != rate and abs(charges.owed_ms - owed) < 0.1

    in_virtual_time(main)


def test_a_measured_coroutine_that_is_thrown_away_is_closed() -> None:
    async def main() -> None:
        charges, cleaned = Charges(), list[str]()
        await charges.time.admit("B")
        usage = await charges.admitted()

        async def endless() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append("up")

        work = endless()
        steps = usage.measure(work).__await__()
        next(steps)
        steps.close()
        assert cleaned == ["up"]

    in_virtual_time(main)
