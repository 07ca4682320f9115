"""In-memory cache of parts of the index, within a limit: the least recently used value is dropped first.

Reads run on several threads. Each single step on the dictionary is atomic; a lost entry costs a read, never
correctness, because the caller knows by the key, or checks by the value, whether it matches the database.
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
    """Values by their keys, in order of use; limited to about so many bytes, but never less than the last value."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[K, V] = {}
        self._bytes = 0  # at least what is held, but for what two threads add at the same moment

    def get(self, key: K) -> V | None:
        """The value, which is now the most recently used."""
        found = self._held.pop(key, None)
        if found is not None:
            self._held[key] = found
        return found

    def put(self, key: K, value: V) -> None:
        """Stores a value, replacing the one under that key."""
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
