"""Pieces of a restore: small writes, each short enough to be a transaction of its own.

The pieces are planned on one snapshot and then run in order. Run in one transaction they are an ordinary restore; run
one by one they are a long one that lets other writes in between. A piece may run again after a crash, because the plan
is made anew from what is stored then.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kelpie.core.ids import AgentId
from kelpie.world.database import Tx

BYTES_MAX = 256 * 1024  # that one piece writes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Piece:
    """A write of so many rows; it returns the agents that must reload."""

    rows: int
    run: Callable[[Tx], Sequence[AgentId]]


def one(run: Callable[[Tx], object], rows: int = 1) -> Piece:
    """A piece that concerns no other agent."""

    def write(tx: Tx) -> Sequence[AgentId]:
        run(tx)
        return ()

    return Piece(rows, write)


def parts(items: Iterable[T], most: int, size: Callable[[T], int] | None = None) -> list[list[T]]:
    """The items in lists of limited length and, if their size is known, of limited size."""
    found, total = list[list[T]](), 0
    for item in items:
        weight = size(item) if size else 0
        if not found or len(found[-1]) >= most or total + weight > BYTES_MAX:
            found.append([])
            total = 0
        found[-1].append(item)
        total += weight
    return found


def each_part(
    items: Sequence[T],
    most: int,
    run: Callable[[Tx, Sequence[T]], object],
    size: Callable[[T], int] | None = None,
) -> list[Piece]:
    """A piece for every part of the items."""
    return [one(lambda tx, part=part: run(tx, part), len(part)) for part in parts(items, most, size)]


def repeated(count: int, most: int, run: Callable[[Tx, int], object]) -> list[Piece]:
    """Pieces that delete some of so many rows each."""
    return [one(lambda tx: run(tx, most), min(most, count)) for _ in range(0, count, most)]
