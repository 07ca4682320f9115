"""Two rankings merged into one: each item's score relative to the best of each ranking, added up.

A BM25 score and a cosine are not comparable, so each is measured by its own ranking: the best of it counts 1, and a
score no better than the worst possible counts 0. Ranks are not enough: among items that share only a name with the
query, one is first by an accident of length.
"""

from collections.abc import Mapping, Sequence

MEANING = 0.7  # weight of meaning, of 1; words have the rest

Ranking = Sequence[tuple[str, float]]  # items, best first, with their scores: more is better


def fused(by_words: Ranking, by_meaning: Ranking) -> list[tuple[str, float]]:
    """The ids of both rankings, best first, with their score: from 0 to 1."""
    words = _relative(by_words, 0.0)  # an item without any of the words has no score at all
    meaning = _relative(by_meaning, min((score for _, score in by_meaning), default=0.0))
    both = {
        item: (1 - MEANING) * words.get(item, 0.0) + MEANING * meaning.get(item, 0.0) for item in (*words, *meaning)
    }
    return sorted(both.items(), key=lambda pair: -pair[1])


def _relative(ranking: Ranking, lowest: float) -> Mapping[str, float]:
    best = max((score for _, score in ranking), default=0.0)
    if best <= lowest:
        return {item: 1.0 for item, _ in ranking}
    return {item: max(score - lowest, 0.0) / (best - lowest) for item, score in ranking}
