"""Scores of a search by words and meaning: what an item's own text says, what its neighbours add, and what a date adds.

Words count by the share of the query that an item contains, each word weighed by how rare it is; a small share counts
less than in proportion, because it is often an accident. A cosine counts as it is, above the mean of the items
compared. So neither depends on what the best item happens to be: where nothing contains the words of a query, its
meaning decides. Where a model's cosines lie very close together, they are spread. A neighbour or a date only adds. The
numbers are explained in decision 0016.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import exp, fsum

WORDS, WORDS_POWER = 1.6, 1.75  # weight of an item that contains all words; half of them count 0.3 of that
SPREAD, SPREAD_MAX = 0.15, 3.0  # how far the best cosine is above the mean at least, and how much it is stretched
BEFORE, AFTER = 0.5, 0.3  # share of the score of the item before, and of the item after
DATE = 0.6  # of an item of the time that the query mentions


@dataclass(frozen=True, slots=True)
class MeaningScale:
    """How much a cosine of one model counts, by those of the items that were compared."""

    mean: float
    weight: float

    @staticmethod
    def of(cosines: Collection[float]) -> "MeaningScale":
        if not cosines:
            return MeaningScale(0.0, 0.0)
        mean = fsum(cosines) / len(cosines)
        above = max(cosines) - mean
        return MeaningScale(mean, min(max(SPREAD / above, 1.0), SPREAD_MAX) if above > 0 else 1.0)

    def scores(self, cosines: Mapping[int, float]) -> dict[int, float]:
        """More than 0 for an item that is nearer than the mean."""
        mean, weight = self.mean, self.weight
        return {number: weight * (cosine - mean) for number, cosine in cosines.items()}


def words_scores(shares: Mapping[int, float]) -> dict[int, float]:
    """The scores of items that contain so much of the query."""
    weight, power = WORDS, WORDS_POWER
    return {number: weight * share**power for number, share in shares.items()}


def neighbour_scores(own: Mapping[int, float], pairs: Iterable[tuple[int, int]]) -> dict[int, float]:
    """What the items before and after each item add to its own score."""
    added: dict[int, float] = {}
    for first, second in pairs:
        if first in own and second in own:
            added[second] = added.get(second, 0.0) + BEFORE * max(own[first], 0.0)
            added[first] = added.get(first, 0.0) + AFTER * max(own[second], 0.0)
    return added


def shown(score: float) -> float:
    """A score as users see it: from 0 to 1, more is better."""
    return 1.0 - exp(-max(score, 0.0))
