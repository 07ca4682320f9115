"""Searching, whatever is searched: the ways to look, and how something was found."""

from dataclasses import dataclass
from typing import Literal

SearchMode = Literal["hybrid", "vector", "fts"]  # by words and meaning, by meaning alone, by words alone


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that was found: its score, and its places in the rankings by words and by meaning, if it has them."""

    id: str
    score: float
    words_rank: int | None = None
    meaning_rank: int | None = None
