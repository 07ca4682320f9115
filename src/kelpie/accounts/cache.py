"""TTL cache of authenticated callers: bounded in number and in age, and cleared when a key or user changes.

An answer that was being looked up during a change is returned to its caller and not cached: it may be old.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

KEPT_MAX = 4096
KEPT_S = 10.0  # how long a change that another server made may go unnoticed


class TtlCache(Generic[K, V]):
    """Cached answers by key."""

    def __init__(self, kept_max: int = KEPT_MAX, kept_s: float = KEPT_S) -> None:
        self._answers: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._kept_max = kept_max
        self._kept_s = kept_s
        self._changes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: K) -> V | None:
        """The answer, if it is cached."""
        found = self._answers.get(key)
        if found is None:
            return None
        if found[1] <= asyncio.get_running_loop().time():
            del self._answers[key]
            return None
        self._answers.move_to_end(key)
        return found[0]

    async def find(self, key: K, look_up: Callable[[], Awaitable[V | None]]) -> V | None:
        """The answer, looked up if need be. A missing one (None) is not cached."""
        known = self.get(key)
        if known is not None:
            return known
        changes = self._changes
        found = await look_up()
        if found is not None and changes == self._changes:
            self.keep(key, found)
        return found

    def keep(self, key: K, answer: V) -> None:
        """Caches an answer; the one that was not used for the longest makes room for it."""
        self._answers[key] = (answer, asyncio.get_running_loop().time() + self._kept_s)
        if len(self._answers) > self._kept_max:
            self._answers.popitem(last=False)

    def forget(self) -> None:
        """Clears the cache after a change."""
        self._changes += 1
        self._answers.clear()
