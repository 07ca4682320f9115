"""The limits of one provider, shared by all agents: concurrent calls, requests and tokens per minute, money per day.

A call over a limit waits: in order within an agent; the agents of an organization take turns, and so do the
organizations, so that a busy one starves no other. One organization has only its share of the calls at once. Waiting is
bounded in time, and in number for each organization; a call that cannot fit in time is refused at once. Everything runs
on the event loop's clock and in one thread. It must never let a newcomer pass a waiting call, unless that one's
organization has its share.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import Overloaded
from kelpie.core.models.provider_limits import ProviderLimits
from kelpie.fairness.fair_queue import FairQueue
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.llm.limits.sliding_window import SlidingWindow, Slot

MINUTE_S = 60.0
DAY_S = 24 * 3600.0
MICROS = 1_000_000  # of a dollar
WAITING_MAX = 2_000  # calls of one organization
RETRY_AFTER_S = 1.0  # when it is unknown how soon a call in flight will end


@dataclass(frozen=True, slots=True)
class Cost:
    """Expected or real cost of a call: tokens, and millionths of a dollar."""

    tokens: int = 0
    micros: int = 0


class Reservation:
    """The right to make one call. It counts the expected cost until `settle` sets the real one."""

    __slots__ = ("_limiter", "cost", "settled", "slots")

    def __init__(self, limiter: "Limiter", cost: Cost) -> None:
        self._limiter = limiter
        self.cost = cost
        self.settled = False
        self.slots: tuple[Slot, Slot] | None = None

    def settle(self, real: Cost) -> None:
        """Counts the real cost instead of the expected one; only the first call has an effect."""
        if not self.settled:
            self.settled = True
            self._limiter.correct(self, real)


class _Waiter:
    __slots__ = ("future", "reservation")

    def __init__(self, reservation: Reservation, future: asyncio.Future[None]) -> None:
        self.reservation = reservation
        self.future = future


class Limiter:
    """The limits of one provider. All calls come from one event loop."""

    def __init__(
        self, provider: str, bounds: ProviderLimits, wait_s: float, share: OrganizationShare | None = None
    ) -> None:
        """Without a share, one organization may have all calls at once."""
        self.bounds = bounds
        self._provider = provider
        self._wait_s = wait_s
        self._running = 0
        self._running_of: Counter[str] = Counter()  # by organization
        self._share = share
        self._requests = SlidingWindow(bounds.requests, MINUTE_S) if bounds.requests else None
        self._tokens = SlidingWindow(bounds.tokens or 2**62, MINUTE_S)
        self._micros = SlidingWindow(round((bounds.dollars or 2**31) * MICROS), DAY_S)
        self._queue: FairQueue[_Waiter] = FairQueue()
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def reserve(self, consumer: Consumer, cost: Cost) -> AsyncGenerator[Reservation, None]:
        """Reserves one call for this agent until the block is left. Raises Overloaded naming the limit."""
        reservation = Reservation(self, cost)
        if len(self._queue) or self._has_share(consumer.organization) or self._blocked(cost) is not None:
            await self._wait(consumer, reservation)
        else:
            self._admit(consumer, reservation)
            self._queue.record_turn(consumer)
        try:
            yield reservation
        finally:
            self._leave(consumer)
            self._pump()

    def correct(self, reservation: Reservation, real: Cost) -> None:
        """Counts the real cost of a call, now, instead of the amount reserved when it began."""
        assert reservation.slots is not None
        now = _now()
        tokens, micros = reservation.slots
        tokens.amount -= reservation.cost.tokens
        micros.amount -= reservation.cost.micros
        self._tokens.add(real.tokens, now)
        self._micros.add(real.micros, now)
        self._pump()

    def remember(self, micros: int, age_s: float) -> None:
        """Counts money that was spent before this limiter was created; the oldest comes first."""
        self._micros.add(micros, _now() - age_s)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    # --- capacity ------------------------------------------------------------------------------------------------

    def _blocked(self, cost: Cost) -> tuple[str, float | None] | None:
        """The limit that blocks the call, and when it will no longer (None: when a call ends)."""
        now = _now()
        bounds = self.bounds
        found: list[tuple[float, str]] = [
            (self._tokens.opens_at(cost.tokens, now), f"{bounds.tokens} tokens a minute"),
            (self._micros.opens_at(cost.micros, now), f"{bounds.dollars or 0:g} dollars a day"),
        ]
        if self._requests is not None:
            found.append((self._requests.opens_at(1, now), f"{bounds.requests} requests a minute"))
        moment, name = max(found)
        if moment > now:
            return name, moment
        if bounds.calls is not None and self._running >= bounds.calls:
            return f"{bounds.calls} calls at once", None
        return None

    def _has_share(self, organization: str) -> bool:
        """Checks whether an organization has all the calls at once that it may have beside the others."""
        calls, share = self.bounds.calls, self._share
        if calls is None or share is None:
            return False
        return not share.allows(self._running_of[organization], 1, calls - self._running)

    def _leave(self, consumer: Consumer) -> None:
        self._running -= 1
        self._running_of[consumer.organization] -= 1
        if not self._running_of[consumer.organization]:
            del self._running_of[consumer.organization]

    def _admit(self, consumer: Consumer, reservation: Reservation) -> None:
        now = _now()
        self._running += 1
        self._running_of[consumer.organization] += 1
        if self._requests is not None:
            self._requests.add(1, now)
        reservation.slots = (
            self._tokens.add(reservation.cost.tokens, now),
            self._micros.add(reservation.cost.micros, now),
        )

    # --- waiting -------------------------------------------------------------------------------------------------

    async def _wait(self, consumer: Consumer, reservation: Reservation) -> None:
        now = _now()
        blocked = self._blocked(reservation.cost)
        if blocked is not None and blocked[1] is not None and blocked[1] > now + self._wait_s:
            raise self._refusal(blocked)
        if self._queue.count(consumer.organization) >= WAITING_MAX:
            raise self._refusal((f"{WAITING_MAX} calls of this organization are already waiting", None))
        waiter = _Waiter(reservation, asyncio.get_running_loop().create_future())
        self._queue.add(consumer, waiter)
        self._pump()
        try:
            async with asyncio.timeout(self._wait_s):
                await waiter.future
        except TimeoutError:
            if reservation.slots is not None:  # it came with the last moment
                return
            share = f"this organization's share of {self.bounds.calls} calls at once"
            raise self._refusal(self._blocked(reservation.cost) or (share, None)) from None
        except BaseException:  # raised again
            if reservation.slots is not None:  # let in, and cancelled before it knew
                self._leave(consumer)
                reservation.settle(Cost())
            raise
        finally:
            if reservation.slots is None:
                self._queue.remove(consumer, waiter)
            self._pump()

    def _refusal(self, blocked: tuple[str, float | None]) -> Overloaded:
        name, moment = blocked
        after_s = RETRY_AFTER_S if moment is None else max(RETRY_AFTER_S, moment - _now())
        return Overloaded(
            "provider_limit_reached",
            f"The limit of {self._provider} is reached: {name}. Try again in {after_s:.0f} s.",
            after_s,
        )

    def _pump(self) -> None:
        """Admits waiting calls as long as the limits allow; sets a timer for the moment at which they will again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while (found := self._next()) is not None:
            consumer, waiter = found
            blocked = self._blocked(waiter.reservation.cost)
            if blocked is not None:
                if blocked[1] is not None:
                    self._timer = asyncio.get_running_loop().call_at(blocked[1], self._pump)
                return
            self._queue.serve(consumer, waiter)
            self._admit(consumer, waiter.reservation)
            if not waiter.future.done():
                waiter.future.set_result(None)

    def _next(self) -> tuple[Consumer, _Waiter] | None:
        """The call whose turn it is; organizations that have their share are passed over."""
        found = self._queue.next_of_each()
        return next((each for each in found if not self._has_share(each[0].organization)), None)


def _now() -> float:
    return asyncio.get_running_loop().time()
