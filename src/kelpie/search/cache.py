"""What is held in memory of the index, within a bound: whatever was used longest ago is let go first.

Reads run on several threads. Each single step on the dictionary is atomic; to lose one costs a read, never the truth,
because whoever asks says by the key, or finds out by the value, whether it is what the database holds now.
"""

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

KEPT = 7 / 8  # of the bound, once it was reached: to let go costs a look at all that is held


class SizedValue(Protocol):
    @property
    def bytes(self) -> int: ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=SizedValue)


class SizedCache(Generic[K, V]):
    """Values by their keys, used last, last; about so many bytes of them, and never less than the last one."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[K, V] = {}
        self._bytes = 0  # at least what is held, but for what two threads add at the same moment

    def get(self, key: K) -> V | None:
        """The value, which now is the one used last."""
        found = self._held.pop(key, None)
        if found is not None:
            self._held[key] = found
        return found

    def put(self, key: K, value: V) -> None:
        """Holds a value, instead of the one that was held by that key."""
        self._held.pop(key, None)
        self._held[key] = value
        self._bytes += value.bytes
        if self._bytes > self._bytes_max:
            self._let_go()

    def _let_go(self) -> None:
        held = list(self._held.items())
        total = sum(value.bytes for _, value in held)
        for key, value in held[:-1] if total > self._bytes_max else ():
            if total <= KEPT * self._bytes_max:
                break
            self._held.pop(key, None)
            total -= value.bytes
        self._bytes = total
