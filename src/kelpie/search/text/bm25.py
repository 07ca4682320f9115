"""Items of some scopes that contain given words, scored by BM25 with the statistics of those scopes.

The cost depends on the items in the scopes and on nothing else in the database. Segments are read row by row for the
requested words; unsealed items, of which there are few, are scanned (`unsealed_items`). The caller checks whether an
item still exists and whose it is. A row that does not match its checksum is logged and left out.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import log1p
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, bindparam, select, text

from kelpie.observe import logs
from kelpie.search.cache import SizedCache
from kelpie.search.item_lookup import inside
from kelpie.search.tables import search_segments
from kelpie.search.text import segments
from kelpie.search.text.postings import ChosenPlaces, PostingList, holding
from kelpie.search.text.segment_queue import BITS_MAX
from kelpie.search.text.segments import Members
from kelpie.search.text.unsealed_items import HELD_BYTES_MAX as UNSEALED_BYTES_MAX
from kelpie.search.text.unsealed_items import CachedUnsealedItems
from kelpie.world.database import remembered
from kelpie.world.statements import Prepared

ENOUGH, SCORED_MAX = 500, 5_000  # items that the rarer words of a query bring: at least, and then not more than
K1, B = 0.9, 0.4  # how soon a repeated word stops to count, and how much a long text counts less (decision 0016)
HELD_BYTES_MAX = 32 * 1024 * 1024
_CHUNK = 500

Places = NDArray[np.intp]
Scores = NDArray[np.float32]

_log = logs.get("search")
_S = search_segments.c


@dataclass(frozen=True, slots=True)
class Part:
    """Some items, and which of them contain which of the requested words."""

    members: Members
    held: Mapping[int, PostingList]  # without the words that no item contains
    counts: Mapping[int, int]  # of the items that contain each of them


class TextIndexCache:
    """Cache of the text index. A segment never changes, so a cached one is always valid."""

    def __init__(self, segment_bytes_max: int = HELD_BYTES_MAX, unsealed_bytes_max: int = UNSEALED_BYTES_MAX) -> None:
        self.segments: SizedCache[tuple[int, int, int], Members] = SizedCache(segment_bytes_max)
        self.unsealed = CachedUnsealedItems(unsealed_bytes_max)


@dataclass(frozen=True, slots=True)
class ScoredItems:
    """Items in no order: the number, the checksum and the score of each, and whether it contains every word."""

    numbers: NDArray[np.int64]
    checksums: NDArray[np.uint32]
    scores: NDArray[np.float32]
    whole: NDArray[np.bool_]
    is_cut: bool = False  # true if there are more that contain only common words
    ideal: float = 1.0  # the score of an item of mean length that contains every word once

    @property
    def size(self) -> int:
        return self.numbers.size

    def of(self, checksums: Mapping[int, int]) -> dict[int, float]:
        """The scores of the items with these numbers, if their words have these checksums."""
        if not self.size:
            return {}
        wanted = np.fromiter(checksums, np.int64, len(checksums))
        if (self.numbers[1:] > self.numbers[:-1]).all():  # as they are unless an item was written anew
            at = np.searchsorted(self.numbers, wanted)
            at = at[at < self.size]
        else:
            at = np.flatnonzero(np.isin(self.numbers, wanted))
        columns = (self.numbers[at].tolist(), self.checksums[at].tolist(), self.scores[at].tolist())
        return {
            number: score for number, written, score in zip(*columns, strict=True) if checksums.get(number) == written
        }

    def best(self, most: int) -> list[tuple[int, int, float, bool]]:
        """The best, or more if several have the same score: items with every word first; of equals, the older one."""
        keys = self.scores + self.whole * (float(self.scores.max(initial=0.0)) + 1.0)
        among = np.arange(keys.size)
        if keys.size > most:
            among = np.flatnonzero(keys >= np.partition(keys, keys.size - most)[keys.size - most])
        at = among[np.lexsort((self.numbers[among], -keys[among]))]
        columns = (self.numbers, self.checksums, self.scores, self.whole)
        return list(zip(*(column[at].tolist() for column in columns), strict=True))


@lru_cache(maxsize=64)
def _segments(scopes: Select[Any] | None) -> Callable[..., Sequence[Any]]:
    of_scopes = (_S.kind == bindparam("the_kind")) & inside(_S.scope, scopes)
    found = select(_S.id, _S.size, _S.bits, _S.checksum).where(of_scopes).order_by(_S.id)
    return Prepared(found).rows if scopes is None else lambda tx, bound: tx.execute(found, bound).all()


def parts(tx: Connection, scopes: Select[Any] | None, bound: Mapping[str, Any], words: Sequence[int]) -> list[Part]:
    """The parts of `the_scope`, or of the scopes that a statement gives."""
    found = _sealed(tx, _segments(scopes)(tx, bound), words)
    loose = remembered(tx, TextIndexCache).unsealed.of(tx, scopes, bound)
    if loose is not None:
        found.append(_part(loose.members, loose.holding(words)))
    return found


def _part(members: Members, held: Mapping[int, PostingList]) -> Part:
    counts = {word: count for word, each in held.items() if (count := each.size)}
    return Part(members, {word: held[word] for word in counts}, counts)


def _sealed(tx: Connection, rows: Sequence[Any], words: Sequence[int]) -> list[Part]:
    members = _members(tx, rows)
    rows = [row for row in rows if row.id in members]
    places = {row.id: {word: row_key(row.id, segments.row_of(word, row.bits)) for word in words} for row in rows}
    stored = _postings(tx, list(dict.fromkeys(at for row in rows for at in places[row.id].values())))
    return [
        _part(
            members[row.id],
            {word: holding(stored[at], row.size, word) for word, at in places[row.id].items() if at in stored},
        )
        for row in rows
    ]


def row_key(segment: int, row: int) -> int:
    """Primary key of a row of a segment's postings."""
    return (segment << BITS_MAX) + row


_UNKNOWN = select(_S.id, _S.members, _S.checksum).where(_S.id.in_(bindparam("ids", expanding=True)))


def _members(tx: Connection, rows: Sequence[Any]) -> dict[int, Members]:
    """The items of each segment, except damaged ones."""
    cache = remembered(tx, TextIndexCache).segments
    keys = {row.id: (row.id, row.size, row.checksum) for row in rows}
    found = {number: cache.get(key) for number, key in keys.items()}
    unknown = [number for number, members in found.items() if members is None]
    for start in range(0, len(unknown), _CHUNK):
        for row in tx.execute(_UNKNOWN, {"ids": unknown[start : start + _CHUNK]}).all():
            if _is_whole(row.members, row.checksum, row.id):
                found[row.id] = members = Members.unpacked(row.members)
                cache.put(keys[row.id], members)
    return {number: members for number, members in found.items() if members is not None}


# The numbers are one JSON list: hundreds of parameters cost more than the rows they fetch. The result is one row,
# because for each further row concurrent turns would wait for the interpreter once more.
_POSTINGS = text(
    "SELECT json_group_array(p.place), json_group_array(p.checksum), json_group_array(length(p.postings)),"
    " CAST(group_concat(p.postings, '') AS BLOB)"
    " FROM json_each(:places) AS n JOIN search_postings AS p ON p.place = n.value"
)


def _postings(tx: Connection, places: Sequence[int]) -> dict[int, bytes]:
    if not places:
        return {}
    *listed, joined = tx.execute(_POSTINGS, {"places": str(list(places))}).one()
    found, checksums, lengths = map(orjson.loads, listed)
    ends = accumulate(lengths)
    stored = {at: joined[end - length : end] for at, length, end in zip(found, lengths, ends, strict=True)}
    return {
        at: each
        for (at, each), checksum in zip(stored.items(), checksums, strict=True)
        if _is_whole(each, checksum, at)
    }


def _is_whole(stored: bytes, checksum: int, number: int) -> bool:
    if segments.is_whole(stored, checksum):
        return True
    _log.error("text_index_damaged", "Part of the text index is damaged and was skipped", number=number)
    return False


# --- scored ---------------------------------------------------------------------------------------------------------


_NOTHING = ScoredItems(np.empty(0, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32), np.empty(0, np.bool_))


def scored(
    found: Sequence[Part], words: Sequence[int], most: int, *, cut: bool, besides: Container[int] = ()
) -> ScoredItems:
    """All items that contain a word. With `cut`, very common words match no items by themselves, and only add to the
    score of items with a rarer one. The words `besides` are not expected of the ideal item."""
    if not found:
        return _NOTHING
    holding = {word: sum(part.counts.get(word, 0) for part in found) for word in words}
    bringing = _rarer(holding, most) if cut else set(words)
    total = sum(part.members.numbers.size for part in found)
    mean = max(sum(part.members.words for part in found) / total, 1.0)
    worth = {word: log1p((total - count + 0.5) / (count + 0.5)) for word, count in holding.items()}
    pieces = [piece for part in found if (piece := _piece(part, worth, bringing, mean)) is not None]
    if not pieces:
        return replace(_NOTHING, is_cut=len(bringing) < len(words), ideal=_ideal(worth, besides))
    numbers, checksums, scores, hits = (np.concatenate(each) for each in zip(*pieces, strict=True))
    is_cut = len(bringing) < len(words)
    return ScoredItems(numbers, checksums, scores, hits == len(words), is_cut, _ideal(worth, besides))


def _ideal(worth: Mapping[int, float], besides: Container[int]) -> float:
    expected = sum(value for word, value in worth.items() if word not in besides)
    return expected or sum(worth.values())


def _rarer(holding: Mapping[int, int], most: int) -> set[int]:
    """The rarer words, as many as may be scored at once: a word that is everywhere carries little information."""
    brought, rarer = 0, set[int]()
    for word, count in sorted(holding.items(), key=lambda pair: pair[1]):
        if brought >= max(ENOUGH, most) and brought + count > SCORED_MAX:
            break
        brought += count
        rarer.add(word)
    return rarer


_Piece = tuple[NDArray[np.int64], NDArray[np.uint32], Scores, NDArray[np.intp]]


def _piece(part: Part, worth: Mapping[int, float], bringing: Container[int], mean: float) -> _Piece | None:
    """The items of a part that contain one of the matching words: number and checksum, the score, and how many of all
    words each contains. `mean` is the number of words per item, over all parts."""
    brought = _brought(part, bringing)
    if not brought.size:
        return None
    members, chosen = part.members, ChosenPlaces(brought, part.members.numbers.size)
    counts = np.array([each.at(chosen) for each in part.held.values()])
    often = counts.astype(np.float32)
    worths = np.array([worth[word] * (K1 + 1) for word in part.held], np.float32)
    rest = (K1 * (1 - B) + (K1 * B / mean) * members.lengths[brought]).astype(np.float32)
    longer = often + rest
    often *= worths[:, np.newaxis]
    often /= longer
    hits = np.count_nonzero(counts, axis=0)
    return members.numbers[brought], members.checksums[brought], often.sum(axis=0), hits


def _brought(part: Part, bringing: Container[int]) -> Places:
    """The places of all items that contain one of these words, in order."""
    there = np.zeros(part.members.numbers.size, np.bool_)
    for word, each in part.held.items():
        if word in bringing:
            each.mark(there)
    return np.flatnonzero(there)
