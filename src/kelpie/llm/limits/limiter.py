"""The limits of one provider, shared by all agents: concurrent calls, requests and tokens per minute, money per day.

A call over a limit waits: in order within an agent, and the agents take turns, so that a busy one starves no other.
Waiting is bounded in time and in number; a call that cannot fit in time is refused at once. Everything runs on the
event loop's clock and in one thread. It must never let a newcomer pass a waiting call.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kelpie.core.errors import Overloaded
from kelpie.core.models.provider_limits import ProviderLimits
from kelpie.llm.limits.sliding_window import SlidingWindow, Slot

MINUTE_S = 60.0
DAY_S = 24 * 3600.0
MICROS = 1_000_000  # of a dollar
WAITING_MAX = 10_000
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
    __slots__ = ("agent", "future", "reservation")

    def __init__(self, agent: str, reservation: Reservation, future: asyncio.Future[None]) -> None:
        self.agent = agent
        self.reservation = reservation
        self.future = future


class Limiter:
    """The limits of one provider. All calls come from one event loop."""

    def __init__(self, provider: str, bounds: ProviderLimits, wait_s: float) -> None:
        self.bounds = bounds
        self._provider = provider
        self._wait_s = wait_s
        self._running = 0
        self._requests = SlidingWindow(bounds.requests, MINUTE_S) if bounds.requests else None
        self._tokens = SlidingWindow(bounds.tokens or 2**62, MINUTE_S)
        self._micros = SlidingWindow(round((bounds.dollars or 2**31) * MICROS), DAY_S)
        self._queues: dict[str, deque[_Waiter]] = {}  # by agent
        self._turns: deque[str] = deque()  # agents with waiting calls; the first is next
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def reserve(self, agent: str, cost: Cost) -> AsyncGenerator[Reservation, None]:
        """Reserves one call for this agent until the block is left. Raises Overloaded naming the limit."""
        reservation = Reservation(self, cost)
        if self._turns or self._blocked(cost) is not None:
            await self._wait(agent, reservation)
        else:
            self._admit(reservation)
        try:
            yield reservation
        finally:
            self._running -= 1
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
        return self._waiting

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

    def _admit(self, reservation: Reservation) -> None:
        now = _now()
        self._running += 1
        if self._requests is not None:
            self._requests.add(1, now)
        reservation.slots = (
            self._tokens.add(reservation.cost.tokens, now),
            self._micros.add(reservation.cost.micros, now),
        )

    # --- waiting -------------------------------------------------------------------------------------------------

    async def _wait(self, agent: str, reservation: Reservation) -> None:
        now = _now()
        blocked = self._blocked(reservation.cost)
        too_late = blocked is not None and blocked[1] is not None and blocked[1] > now + self._wait_s
        if too_late or self._waiting >= WAITING_MAX:
            raise self._refusal(blocked)
        waiter = _Waiter(agent, reservation, asyncio.get_running_loop().create_future())
        self._join(waiter)
        try:
            async with asyncio.timeout(self._wait_s):
                await waiter.future
        except TimeoutError:
            if reservation.slots is not None:  # it came with the last moment
                return
            raise self._refusal(self._blocked(reservation.cost)) from None
        except BaseException:  # raised again
            if reservation.slots is not None:  # let in, and cancelled before it knew
                self._running -= 1
                reservation.settle(Cost())
            raise
        finally:
            if reservation.slots is None:
                self._leave(waiter)
            self._pump()

    def _refusal(self, blocked: tuple[str, float | None] | None) -> Overloaded:
        name, moment = blocked or (f"{self._waiting} calls are already waiting", None)
        after_s = RETRY_AFTER_S if moment is None else max(RETRY_AFTER_S, moment - _now())
        return Overloaded(f"The limit of {self._provider} is reached: {name}. Try again in {after_s:.0f} s.", after_s)

    def _join(self, waiter: _Waiter) -> None:
        queue = self._queues.get(waiter.agent)
        if queue is None:
            queue = self._queues[waiter.agent] = deque()
            self._turns.append(waiter.agent)
        queue.append(waiter)
        self._waiting += 1
        self._pump()

    def _leave(self, waiter: _Waiter) -> None:
        queue = self._queues[waiter.agent]
        queue.remove(waiter)
        self._waiting -= 1
        if not queue:
            del self._queues[waiter.agent]
            self._turns.remove(waiter.agent)

    def _pump(self) -> None:
        """Admits waiting calls as long as the limits allow; sets a timer for the moment at which they will again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._turns:
            agent = self._turns[0]
            waiter = self._queues[agent][0]
            blocked = self._blocked(waiter.reservation.cost)
            if blocked is not None:
                if blocked[1] is not None:
                    self._timer = asyncio.get_running_loop().call_at(blocked[1], self._pump)
                return
            self._leave(waiter)
            if agent in self._queues:  # its next one waits until all others had their turn
                self._turns.remove(agent)
                self._turns.append(agent)
            self._admit(waiter.reservation)
            if not waiter.future.done():
                waiter.future.set_result(None)


def _now() -> float:
    return asyncio.get_running_loop().time()
