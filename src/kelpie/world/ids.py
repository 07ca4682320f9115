"""New ids and randomness."""

import random
import uuid
from typing import Protocol, TypeVar

from kelpie.core.ids import Id

AnyId = TypeVar("AnyId", bound=Id)


class Ids(Protocol):
    def new(self, kind: type[AnyId]) -> AnyId:
        """A fresh id of this kind."""
        ...

    def uuid(self) -> str:
        """A fresh uuid4 without a prefix."""
        ...


class RandomIds:
    """Ids from the operating system's randomness."""

    def new(self, kind: type[AnyId]) -> AnyId:
        return kind(f"{kind.prefix}-{uuid.uuid4()}")

    def uuid(self) -> str:
        return str(uuid.uuid4())


class SeededIds:
    """Ids from a seeded generator: the same seed gives the same ids."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def new(self, kind: type[AnyId]) -> AnyId:
        return kind(f"{kind.prefix}-{self.uuid()}")

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
