"""Fair slots: a limit on what runs at once, for which organizations and then their agents take turns.

A free slot is taken at once, without a switch to another task. Waiting is bounded in time, and in number for each
organization, so no organization can fill the queue of the others. A slot also has an amount, such as the memory of its
job, where there is a limit on the sum. No slot may be lost: one that is granted to a waiter that is being cancelled
goes to the next. All calls come from one event loop.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import Overloaded
from kelpie.fairness.fair_queue import FairQueue
from kelpie.fairness.organization_share import OrganizationShare

RETRY_AFTER_S = 1.0  # when it is unknown how soon a slot comes free


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """Limits of fair slots. An error has this `code` and names one of them as `what`; `amount` bounds the sum of the
    amounts."""

    code: str
    what: str
    slots: int
    waiting_max: int  # of one organization
    wait_s: float
    amount: int | None = None


class _Waiter:
    __slots__ = ("amount", "future", "granted")

    def __init__(self, amount: int, future: asyncio.Future[None]) -> None:
        self.amount = amount
        self.future = future
        self.granted = False


class FairSlots:
    """The slots of one kind."""

    def __init__(self, limits: SlotLimits, share: OrganizationShare | None = None) -> None:
        """Without a share, one organization may hold all slots."""
        self.limits = limits
        self._share = share
        self._slots = limits.slots
        self._queue: FairQueue[_Waiter] = FairQueue()
        self._running = 0
        self._amount = 0
        self._held: Counter[str] = Counter()  # slots by organization
        self._amounts: Counter[str] = Counter()

    @property
    def running(self) -> int:
        return self._running

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def held_by(self, organization: str) -> int:
        """Number of slots that an organization holds."""
        return self._held[organization]

    def has_room(self, organization: str) -> bool:
        """Checks whether a slot is free that this organization may take."""
        return self._running < self._slots and self._within_share(organization, 0)

    def take_now(self, consumer: Consumer, amount: int = 0) -> bool:
        """Takes a slot if one is free and nobody has an earlier claim to it."""
        if len(self._queue) or self._running >= self._slots or not self._fits(amount):
            return False
        if not self._within_share(consumer.organization, amount):
            return False
        self._grant(consumer, amount)
        self._queue.record_turn(consumer)
        return True

    async def take(self, consumer: Consumer, amount: int = 0) -> None:
        """Takes a slot, in turn. Raises Overloaded when too many of the organization wait, or for too long."""
        if self.take_now(consumer, amount):
            return
        limits = self.limits
        if self._queue.count(consumer.organization) >= limits.waiting_max:
            raise Overloaded(
                limits.code,
                f"{limits.waiting_max} calls of this organization are already waiting for a free {limits.what}; try "
                "again later",
                RETRY_AFTER_S,
            )
        waiter = _Waiter(amount, asyncio.get_running_loop().create_future())
        self._queue.add(consumer, waiter)
        self._pump()  # others wait who may not have more at present; this one may
        try:
            async with asyncio.timeout(limits.wait_s):
                await waiter.future
        except BaseException as error:  # raised again, unless the slot came with the last moment
            if not waiter.granted:
                self._queue.remove(consumer, waiter)
                self._pump()  # a large job that gave up kept smaller ones waiting
            elif isinstance(error, TimeoutError):
                return
            else:
                self.give_back(consumer, amount)
            if isinstance(error, TimeoutError):
                text = f"no {limits.what} was free within {limits.wait_s:.0f} s; try again later"
                raise Overloaded(limits.code, text, RETRY_AFTER_S) from None
            raise

    def give_back(self, consumer: Consumer, amount: int = 0) -> None:
        """Frees a slot for whoever's turn it is."""
        organization = consumer.organization
        self._running -= 1
        self._amount -= amount
        self._held[organization] -= 1
        self._amounts[organization] -= amount
        if not self._held[organization]:
            del self._held[organization], self._amounts[organization]
        self._pump()

    @asynccontextmanager
    async def slot(self, consumer: Consumer, amount: int = 0) -> AsyncGenerator[None]:
        """Holds a slot while the body runs. Raises Overloaded as `take` does."""
        await self.take(consumer, amount)
        try:
            yield
        finally:
            self.give_back(consumer, amount)

    def resize(self, slots: int) -> None:
        """Changes the number of slots; those that are taken stay so."""
        self._slots = slots
        self._pump()

    # --- turns -----------------------------------------------------------------------------------------------------

    def _fits(self, amount: int) -> bool:
        """Checks the sum of the amounts; alone, every job fits."""
        return self.limits.amount is None or not self._running or self._amount + amount <= self.limits.amount

    def _within_share(self, organization: str, amount: int) -> bool:
        if self._share is None:
            return True
        if not self._share.allows(self._held[organization], 1, self._slots - self._running):
            return False
        if self.limits.amount is None:
            return True
        return self._share.allows(self._amounts[organization], amount, self.limits.amount - self._amount)

    def _grant(self, consumer: Consumer, amount: int) -> None:
        self._running += 1
        self._amount += amount
        self._held[consumer.organization] += 1
        self._amounts[consumer.organization] += amount

    def _pump(self) -> None:
        while len(self._queue) and self._running < self._slots and (found := self._next()) is not None:
            consumer, waiter = found
            self._queue.serve(consumer, waiter)
            self._grant(consumer, waiter.amount)
            waiter.granted = True
            if not waiter.future.done():
                waiter.future.set_result(None)

    def _next(self) -> tuple[Consumer, _Waiter] | None:
        """The waiter whose turn it is. Organizations that have their share are passed over; nobody passes a job that is
        too large at present and whose organization holds nothing, else small jobs would keep it waiting for ever."""
        for consumer, waiter in self._queue.next_of_each():
            if not self._within_share(consumer.organization, waiter.amount):
                continue
            if self._fits(waiter.amount):
                return consumer, waiter
            if not self._held[consumer.organization]:
                return None
        return None
