"""Ranking by words and meaning together: the candidates of both, their neighbours, and what speaks for each.

Every candidate is compared by both, however it was found: a match by words has its cosine read, and a near item its
words counted. So it does not matter which of the two found it, nor how many others there are.
"""

from collections.abc import Mapping, Sequence

from kelpie.core.search_hits import Hit, MatchReason
from kelpie.search import neighbours, ranking
from kelpie.search.item_lookup import Lookup, There
from kelpie.search.neighbours import Pair
from kelpie.search.queries import ItemQuery, NearItems
from kelpie.search.ranking import MeaningScale
from kelpie.search.text.fulltext import TextQuery

CENTRES_MIN, CENTRES_MAX = 12, 100  # items whose neighbours are looked at
NEIGHBOUR_MIN = 0.1  # what neighbours must add to be named as a reason
IN_ORDER = frozenset({"message", "passage"})  # kinds of items that may have neighbours


def ranked(lookup: Lookup, wanted: ItemQuery, near: NearItems) -> list[Hit]:
    """The best items, best first."""
    dates = " ".join(mention.words for mention in wanted.mentions)
    guesses, texts = dict(near.found), TextQuery(lookup, wanted.words, wanted.depth, dates)
    pairs = _pairs(lookup, wanted, guesses, texts) if lookup.kind in IN_ORDER else []
    around = dict.fromkeys(each for pair in pairs for each in pair) if near else {}  # words alone: it must contain one
    lookup.expect((*guesses, *around))
    matches = texts.matches()
    there = lookup.of([*(match.number for match in matches), *guesses])
    every = there | lookup.of(list(around)) if around else there
    cosines = near.cosines(lookup.tx, every.keys())
    words, meaning = ranking.words_scores(texts.shares_of(every)), _meaning(there, cosines)
    own = {number: words.get(number, 0.0) + meaning.get(number, 0.0) for number in every}
    added = ranking.neighbour_scores(own, pairs)
    totals = own | {number: own[number] + more for number, more in added.items()}
    dated = _dated(lookup, wanted, every, totals)
    totals |= {number: totals[number] + ranking.DATE * near_it for number, near_it in dated.items()}
    by_words = {match.number: place for place, match in enumerate(matches, 1)}
    by_meaning = _places(guesses, cosines)
    return [
        Hit(
            every[number][0],
            ranking.shown(totals[number]),
            by_words.get(number),
            by_meaning.get(number),
            _reasons(words.get(number, 0.0), meaning.get(number, 0.0), added.get(number, 0.0), dated.get(number, 0.0)),
        )
        for number in sorted(totals, key=lambda number: (-totals[number], number))[: wanted.limit]
    ]


def _pairs(lookup: Lookup, wanted: ItemQuery, guesses: Mapping[int, float], texts: TextQuery) -> list[Pair]:
    """The pairs of neighbours around those that are likely the best, as far as is known before anything is read."""
    first = MeaningScale.of(guesses.values()).scores(guesses)
    for number, score in ranking.words_scores(dict(texts.likely)).items():
        first[number] = first.get(number, 0.0) + score
    most = min(max(CENTRES_MIN, wanted.limit), CENTRES_MAX)
    return neighbours.pairs(lookup.tx, sorted(first, key=lambda number: (-first[number], number))[:most])


def _meaning(there: Mapping[int, There], cosines: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """The scores by meaning. Items that only stand beside others do not change what counts as near."""
    found: dict[int, float] = {}
    for some in cosines.values():
        found |= MeaningScale.of([cosine for number, cosine in some.items() if number in there]).scores(some)
    return found


def _places(guesses: Mapping[int, float], cosines: Mapping[str, Mapping[int, float]]) -> dict[int, int]:
    """The ranks by meaning of the items that it has found."""
    known = [(cosine, number) for some in cosines.values() for number, cosine in some.items() if number in guesses]
    return {number: place for place, (_, number) in enumerate(sorted(known, key=lambda pair: (-pair[0], pair[1])), 1)}


def _dated(
    lookup: Lookup, wanted: ItemQuery, there: Mapping[int, There], totals: Mapping[int, float]
) -> dict[int, float]:
    """How near an item is to the time that the query mentions, from 0 to 1; only of those that it may bring up."""
    if not wanted.mentions or wanted.times is None or not totals:
        return {}
    least = sorted(totals.values(), reverse=True)[: wanted.limit][-1] - ranking.DATE
    ids = {number: there[number][0] for number, total in totals.items() if total >= least}
    times = wanted.times(lookup.tx, list(ids.values()))
    near = {at: max(mention.nearness(*at) for mention in wanted.mentions) for at in set(times.values())}
    return {number: near[times[item_id]] for number, item_id in ids.items() if item_id in times}


def _reasons(words: float, meaning: float, added: float, dated: float) -> tuple[MatchReason, ...]:
    said: Sequence[tuple[MatchReason, bool]] = (
        ("words", words > 0),
        ("vector", meaning > 0),
        ("neighbour", added >= NEIGHBOUR_MIN),
        ("date", dated > 0),
    )
    return tuple(reason for reason, holds in said if holds) or ("vector",)
