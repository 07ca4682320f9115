"""Search modes, and hits: how an item was found. Shared by all searches."""

from dataclasses import dataclass
from typing import Literal

SearchMode = Literal["hybrid", "vector", "fts"]  # by words and meaning, by meaning alone, by words alone
MatchReason = Literal["words", "vector", "neighbour", "date"]  # what speaks for an item


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that was found: its score, its ranks by words and by meaning, if it has them, and why it matched."""

    id: str
    score: float
    words_rank: int | None = None
    meaning_rank: int | None = None
    matched: tuple[MatchReason, ...] = ()


PAGED_MIN = 50


def reach(limit: int, page: int) -> int:
    """Number of items to rank so that a page can be cut out: the same for many pages, so that they share one
    ranking."""
    ranked = PAGED_MIN
    while ranked < limit * (page + 1):
        ranked *= 2
    return ranked
