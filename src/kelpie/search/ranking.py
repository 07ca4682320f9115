"""Several rankings made into one by reciprocal rank: what stands high in one stands high, in several higher still.

The ranks decide and not the scores, because a BM25 score and a cosine say nothing about each other.
"""

from collections.abc import Sequence

K = 10  # the smaller, the more the first places count


def fused(rankings: Sequence[Sequence[str]], k: int = K) -> list[tuple[str, float]]:
    """The ids of all rankings, best first, with their score."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for place, item_id in enumerate(ranking, 1):
            scores[item_id] = scores.get(item_id, 0.0) + 1.0 / (k + place)
    return sorted(scores.items(), key=lambda pair: -pair[1])
