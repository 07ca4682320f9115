"""Schedules: the choice of the next callback. No policy finds every bug, so the policy itself is drawn from the seed.

A policy sees the labels of the ready callbacks, oldest first, and answers with an index. None may starve a callback for
ever: the loop runs the oldest one itself once it was passed over too often.
"""

import random
from collections.abc import Sequence
from typing import Protocol


class Labelled(Protocol):
    label: str


class Policy(Protocol):
    name: str

    def pick(self, ready: Sequence[Labelled]) -> int:
        """The index of the callback to run; `ready` has at least two."""
        ...


class Fifo:
    """The order of a real asyncio loop, which the others are compared with."""

    name = "fifo"

    def pick(self, ready: Sequence[Labelled]) -> int:
        return 0


class JitteredFifo:
    """Mostly the order of a real loop, now and then another callback near the front."""

    def __init__(self, rng: random.Random, jitter: float) -> None:
        self.name = f"jitter({jitter})"
        self._rng = rng
        self._jitter = jitter

    def pick(self, ready: Sequence[Labelled]) -> int:
        if self._rng.random() >= self._jitter:
            return 0
        return self._rng.randrange(min(len(ready), 8))


class Uniform:
    """Any callback, with equal chance."""

    name = "random"

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def pick(self, ready: Sequence[Labelled]) -> int:
        return self._rng.randrange(len(ready))


class Pct:
    """Probabilistic concurrency testing: strict random priorities with a few random points where the leader falls last.

    A bug that needs d particular orderings is hit with a probability that does not depend on the number of tasks.
    """

    def __init__(self, rng: random.Random, depth: int, horizon: int) -> None:
        self.name = f"pct({depth})"
        self._rng = rng
        self._priorities: dict[str, float] = {}
        self._picks = 0
        self._falls = sorted((rng.randrange(horizon) for _ in range(depth)), reverse=True)
        self._lowest = 0.0

    def pick(self, ready: Sequence[Labelled]) -> int:
        self._picks += 1
        best, leader = 0, -1.0e9
        for index, handle in enumerate(ready):
            priority = self._priority(handle.label)
            if priority > leader:
                best, leader = index, priority
        if self._falls and self._picks >= self._falls[-1]:
            self._falls.pop()
            self._lowest -= 1.0
            self._priorities[ready[best].label] = self._lowest
        return best

    def _priority(self, label: str) -> float:
        priority = self._priorities.get(label)
        if priority is None:
            priority = self._priorities[label] = self._rng.random()
        return priority


def draw(rng: random.Random) -> Policy:
    """The policy of a run."""
    kind = rng.randrange(4)
    if kind == 0:
        return JitteredFifo(rng, rng.choice((0.02, 0.1, 0.3)))
    if kind == 1:
        return Uniform(rng)
    return Pct(rng, depth=rng.randrange(1, 6), horizon=rng.choice((50, 500, 5000)))
