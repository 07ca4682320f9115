"""The limits on loaded actors, in number and in bytes, and eviction.

A key must hold a slot while it has a handler. Keys that find none wait in order; for each that waits, the idle actor
that was unused for longest is evicted. The same happens while all of them together have too many bytes, except that the
one that was used last stays: it would only be loaded again. Busy actors are never evicted, and an actor is measured
when it falls idle. One timer serves all idle actors.
"""

import asyncio
from typing import Protocol

from kelpie.actors.limits import ActorLimits
from kelpie.core.errors import Overloaded

EVICTIONS_MAX = 50  # actors unloaded per turn of the loop, so that evictions never delay a message
EVICTION_PAUSE_S = 0.01


class SlotHolder(Protocol):
    """Holder of a slot."""

    @property
    def key(self) -> str: ...

    def evict(self, reason: str) -> None:
        """Starts to unload: calls `ActorSlots.leaving` now and `ActorSlots.give_back` when the slot is free."""
        ...


class ActorSlots:
    def __init__(self, limits: ActorLimits) -> None:
        self._limits = limits
        self._held: dict[str, bool] = {}  # key -> whether its holder is on the way out
        self._leaving = 0
        self._queue: dict[str, asyncio.Future[None]] = {}
        self._idle: dict[str, tuple[SlotHolder, float]] = {}  # in the order in which they fell idle
        self._sizes: dict[str, int] = {}  # of holders that are not on the way out, as they last fell idle
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def taken(self) -> int:
        """Number of loaded actors."""
        return len(self._held)

    @property
    def idle(self) -> int:
        """Number of loaded actors without work."""
        return len(self._idle)

    @property
    def bytes(self) -> int:
        """Size of the loaded actors that have been idle before."""
        return self._bytes

    def holds(self, key: str) -> bool:
        """Checks whether the key has its slot."""
        return key in self._held

    def take_now(self, key: str) -> bool:
        """Takes a slot if one is free; then no key waits for one, since freed slots go to the queue at once."""
        if len(self._held) >= self._limits.hot_max:
            return False
        self._held[key] = False
        return True

    async def take(self, key: str) -> None:
        """Takes a slot, waiting in order for one. Raises Overloaded when none came free in time."""
        if self.take_now(key):
            return
        self._queue[key] = ticket = asyncio.get_running_loop().create_future()
        self._make_room()
        try:
            async with asyncio.timeout(self._limits.place_wait_s):
                await ticket
        except TimeoutError:
            self._forgo(key)
            full = f"all {self._limits.hot_max} slots for active agents are busy. Try again later."
            raise Overloaded("agent_slots_full", full, self._limits.retry_after_s) from None
        except asyncio.CancelledError:
            self._forgo(key)
            raise

    def leaving(self, key: str) -> None:
        """Records that a holder will free its slot soon, so that no other is evicted for it."""
        if self._held.get(key) is False:
            self._held[key] = True
            self._leaving += 1
            self._measured(key, 0)

    def give_back(self, key: str) -> None:
        """Frees the key's slot, if it holds one, for the first in the queue."""
        self._leaving -= self._held.pop(key, False)
        self._measured(key, 0)
        while self._queue and len(self._held) < self._limits.hot_max:
            first = next(iter(self._queue))
            ticket = self._queue.pop(first)
            if not ticket.done():
                ticket.set_result(None)
                self._held[first] = False

    def _forgo(self, key: str) -> None:
        self._queue.pop(key, None)
        self.give_back(key)  # it may have been granted in the very moment the wait ended

    def fell_idle(self, guest: SlotHolder, size: int = 0) -> None:
        """Records that a holder of so many bytes has no work: it may be evicted."""
        loop = asyncio.get_running_loop()
        self._idle[guest.key] = (guest, loop.time())
        if self._timer is None:
            self._timer = loop.call_later(self._limits.idle_s, self._evict_expired)
        self._measured(guest.key, size)
        if self._queue:
            self._make_room()
        if self._bytes > self._limits.hot_bytes_max:
            self._lose_weight()

    def fell_busy(self, guest: SlotHolder) -> None:
        """Records that a holder has work again, or is unloading."""
        self._idle.pop(guest.key, None)

    def close(self) -> None:
        """Stops the timer; no more actors are evicted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._idle.clear()

    def _measured(self, key: str, size: int) -> None:
        self._bytes += size - self._sizes.pop(key, 0)
        if size:
            self._sizes[key] = size

    def _lose_weight(self) -> None:
        for _ in range(EVICTIONS_MAX):
            if len(self._idle) < 2 or self._bytes <= self._limits.hot_bytes_max:
                return
            guest, _ = self._idle.pop(next(iter(self._idle)))
            guest.evict("evicted: the loaded agents have too many bytes together")

    def _make_room(self) -> None:
        while self._idle and len(self._queue) > self._leaving:
            guest, _ = self._idle.pop(next(iter(self._idle)))
            guest.evict("evicted: another key needs its place")

    def _evict_expired(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for _ in range(EVICTIONS_MAX):
            if not self._idle:
                return
            guest, since = self._idle[next(iter(self._idle))]
            wait_s = since + self._limits.idle_s - loop.time()
            if wait_s > 0:
                self._timer = loop.call_later(wait_s, self._evict_expired)
                return
            del self._idle[guest.key]
            guest.evict("idle")
        self._timer = loop.call_later(EVICTION_PAUSE_S, self._evict_expired)
