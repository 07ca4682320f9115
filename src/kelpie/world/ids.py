"""New ids and randomness."""

import os
import random
import time
import uuid
from typing import Protocol, TypeVar

from kelpie.core.ids import Id

AnyId = TypeVar("AnyId", bound=Id)
SECRET_BYTES = 32
_BATCH = 256
_VARIANTS = "89ab"


# Ids begin with ten hexadecimal digits of milliseconds since this moment, 2020-01-01; they start again after 34 years.
_SINCE_NS, _MS_BITS = 1_577_836_800 * 10**9, 40


class Ids(Protocol):
    def new(self, kind: type[AnyId]) -> AnyId:
        """A fresh id of this kind. It may tell when it was made, and its first characters are not random."""
        ...

    def uuid(self) -> str:
        """A fresh uuid4 without a prefix. All of it is random."""
        ...

    def secret(self) -> bytes:
        """32 unpredictable bytes."""
        ...


class RandomIds:
    """Ids from the operating system's randomness, fetched for many ids at once: a turn needs about eight.

    Those of rows begin with the time, so that new rows stand next to each other in every index: see decision 0043.
    """

    def __init__(self) -> None:
        self._digits = ""
        self._used = 0

    def new(self, kind: type[AnyId]) -> AnyId:
        now = (time.time_ns() - _SINCE_NS) // 1_000_000 % (1 << _MS_BITS)
        return kind(f"{kind.prefix}-{now >> 8:08x}-{now & 0xFF:02x}{self.uuid()[11:]}")

    def uuid(self) -> str:
        start = self._used
        if start == len(self._digits):
            self._digits, start = os.urandom(16 * _BATCH).hex(), 0
        self._used = start + 32
        digits = self._digits[start : start + 32]
        variant = _VARIANTS[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"

    def secret(self) -> bytes:
        return os.urandom(SECRET_BYTES)


class SeededIds:
    """Ids from a seeded generator: the same seed gives the same ids."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def new(self, kind: type[AnyId]) -> AnyId:
        return kind(f"{kind.prefix}-{self.uuid()}")

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def secret(self) -> bytes:
        return self._rng.randbytes(SECRET_BYTES)
