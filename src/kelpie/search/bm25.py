"""The items of some scopes that hold words, scored by BM25 with the statistics of those very scopes.

What it costs depends on what is in the scopes and on nothing else in the database. Segments are read row by row for the
words asked for; loose items, of which there are few, are looked through. Whether an item is still there, and is whose
it should be, is asked by whoever uses this. A row that does not match its checksum is told and left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Executable, bindparam, select, text

from kelpie.observe import logs
from kelpie.search import segments
from kelpie.search.order import BITS_MAX
from kelpie.search.segments import Holding, Members
from kelpie.search.tables import search_segments

ENOUGH, SCORED_MAX = 500, 5_000  # items that the rarer words of a query bring: at least, and then not more than
K1, B = 1.2, 0.75
HELD_BYTES_MAX = 32 * 1024 * 1024
_CHUNK = 500

Places = NDArray[np.intp]
Scores = NDArray[np.float32]

_log = logs.get("search")
_S = search_segments.c


@dataclass(frozen=True, slots=True)
class Part:
    """Some items, and which of them hold which of the words asked for."""

    members: Members
    held: Mapping[int, Holding]


@dataclass(frozen=True, slots=True)
class Scored:
    """Items in no order: the number, the checksum and the score of each, and whether it holds every word."""

    numbers: NDArray[np.int64]
    checksums: NDArray[np.uint32]
    scores: NDArray[np.float32]
    whole: NDArray[np.bool_]
    is_cut: bool = False  # whether there are more, that hold only common words

    @property
    def size(self) -> int:
        return self.numbers.size

    def best(self, most: int) -> list[tuple[int, int, float, bool]]:
        """The best, or more when several are as good: whoever holds every word first; of equals, the older one."""
        keys = self.scores + self.whole * (float(self.scores.max(initial=0.0)) + 1.0)
        among = np.arange(keys.size)
        if keys.size > most:
            among = np.flatnonzero(keys >= np.partition(keys, keys.size - most)[keys.size - most])
        at = among[np.lexsort((self.numbers[among], -keys[among]))]
        columns = (self.numbers, self.checksums, self.scores, self.whole)
        return list(zip(*(column[at].tolist() for column in columns), strict=True))


def parts(
    tx: Connection, of_segments: Executable, of_loose: Executable, bound: Mapping[str, Any], words: Sequence[int]
) -> list[Part]:
    """What there is in the scopes that the statements are about."""
    found = _sealed(tx, tx.execute(of_segments, bound).all(), words)
    loose = tx.execute(of_loose, bound).all()
    return [*found, _loose(loose, words)] if loose else found


def _sealed(tx: Connection, rows: Sequence[Any], words: Sequence[int]) -> list[Part]:
    members = _MEMBERS.of(tx, rows)
    rows = [row for row in rows if row.id in members]
    places = {row.id: {word: place(row.id, segments.row_of(word, row.bits)) for word in words} for row in rows}
    stored = _postings(tx, list(dict.fromkeys(at for row in rows for at in places[row.id].values())))
    return [
        Part(
            members[row.id],
            {word: segments.holding(stored[at], row.size, word) for word, at in places[row.id].items() if at in stored},
        )
        for row in rows
    ]


def place(segment: int, row: int) -> int:
    """Where a row of a segment's postings is kept."""
    return (segment << BITS_MAX) + row


_UNKNOWN = select(_S.id, _S.members, _S.checksum).where(_S.id.in_(bindparam("ids", expanding=True)))


class _HeldMembers:
    """The items of the segments used last. A segment never changes, so what is held of one is always true."""

    def __init__(self) -> None:
        # Used last, last. Reads run on several threads; each single step on it is atomic, and to lose one costs a read.
        self._held: dict[tuple[int, int, int], Members] = {}

    def of(self, tx: Connection, rows: Sequence[Any]) -> dict[int, Members]:
        """The items of each segment, but of those that are damaged."""
        keys = {row.id: (row.id, row.size, row.checksum) for row in rows}
        found = {number: self._held.pop(key, None) for number, key in keys.items()}
        unknown = [number for number, members in found.items() if members is None]
        for start in range(0, len(unknown), _CHUNK):
            for row in tx.execute(_UNKNOWN, {"ids": unknown[start : start + _CHUNK]}):
                whole = _is_whole(row.members, row.checksum, row.id)
                found[row.id] = Members.unpacked(row.members) if whole else None
        there = {number: members for number, members in found.items() if members is not None}
        self._held |= {keys[number]: members for number, members in there.items()}
        if unknown:
            self._forget()
        return there

    def _forget(self) -> None:
        held = list(self._held.items())
        excess = sum(members.bytes for _, members in held) - HELD_BYTES_MAX
        for key, members in held:
            if excess <= 0:
                return
            self._held.pop(key, None)
            excess -= members.bytes


_MEMBERS = _HeldMembers()
# The numbers come as one JSON list: hundreds of parameters cost more than the rows they fetch.
_POSTINGS = text(
    "SELECT p.place, p.postings, p.checksum FROM json_each(:places) AS n JOIN search_postings AS p ON p.place = n.value"
)


def _postings(tx: Connection, places: Sequence[int]) -> dict[int, bytes]:
    rows = tx.execute(_POSTINGS, {"places": str(list(places))}) if places else ()
    return {place: stored for place, stored, checksum in rows if _is_whole(stored, checksum, place)}


def _is_whole(stored: bytes, checksum: int, number: int) -> bool:
    if segments.is_whole(stored, checksum):
        return True
    _tell(number)
    return False


def _tell(number: int) -> None:
    _log.error("a part of the text index is damaged and left out", number=number)


def _loose(rows: Sequence[Any], words: Sequence[int]) -> Part:
    damaged = {number for number, text, checksum in rows if crc32(text) != checksum}
    for number in sorted(damaged):
        _tell(number)
    numbers, texts, checksums = zip(*rows, strict=True)
    texts = [b"" if number in damaged else text for number, text in zip(numbers, texts, strict=True)]
    flat = np.frombuffer(b"".join(texts), "<u4")
    lengths = np.array(list(map(len, texts)), np.uint32) // 4
    owners = np.repeat(np.arange(len(texts)), lengths)
    held: dict[int, Holding] = {}
    for word in words:
        counts = np.bincount(owners[flat == word])
        places = np.flatnonzero(counts)
        held[word] = Holding(places.size, np.minimum(counts[places], segments.OFTEN).astype(np.uint8), places)
    return Part(Members(np.array(numbers, np.int64), np.array(checksums, np.uint32), lengths), held)


# --- scored ---------------------------------------------------------------------------------------------------------


_NOTHING = Scored(np.empty(0, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32), np.empty(0, np.bool_))


def scored(found: Sequence[Part], words: Sequence[int], most: int, *, cut: bool) -> Scored:
    """All that hold a word. With `cut`, words that are in very many items bring none by themselves, and only add to
    the score of those that hold a rarer one."""
    if not found:
        return _NOTHING
    scope = _Scope(found)
    holding = {word: sum(each.size for _, each in scope.holding(word)) for word in words}
    bringing = _rarer(holding, most) if cut else set(words)
    total = scope.size
    worth = {word: float(np.log1p((total - count + 0.5) / (count + 0.5))) for word, count in holding.items()}
    brought, scores, hits = scope.brought({word: worth[word] for word in words if word in bringing})
    rest = scope.rest[brought]
    for word in (each for each in words if each not in bringing):
        counts = scope.counts(word)[brought]
        scores += _value(counts, rest, worth[word])
        hits += counts > 0
    numbers = np.concatenate([part.members.numbers for part in found])[brought]
    checksums = np.concatenate([part.members.checksums for part in found])[brought]
    return Scored(numbers, checksums, scores, hits == len(words), len(bringing) < len(words))


def _rarer(holding: Mapping[int, int], most: int) -> set[int]:
    """The rarer words, as many as may be scored at once: a word that is everywhere tells next to nothing."""
    brought, rarer = 0, set[int]()
    for word, count in sorted(holding.items(), key=lambda pair: pair[1]):
        if brought >= max(ENOUGH, most) and brought + count > SCORED_MAX:
            break
        brought += count
        rarer.add(word)
    return rarer


class _Scope:
    """The parts as one: the places of a part's items begin where those of the one before it end."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(part.members.lengths.size for part in parts)]).tolist()
        lengths = np.concatenate([part.members.lengths for part in parts])
        self.size = lengths.size
        self.rest = (K1 * (1 - B) + (K1 * B / max(float(lengths.mean()), 1.0)) * lengths).astype(np.float32)

    def holding(self, word: int) -> list[tuple[int, Holding]]:
        """Who holds a word in each part, with the number of that part."""
        return [(at, part.held[word]) for at, part in enumerate(self._parts) if word in part.held]

    def brought(self, worth: Mapping[int, float]) -> tuple[Places, Scores, NDArray[np.uint8]]:
        """All items that hold one of these words, their scores, and how many of the words each holds."""
        scores, hits = np.zeros(self.size, np.float32), np.zeros(self.size, np.uint8)
        for word, value in worth.items():
            for at, each in self.holding(word):
                places, counts = each.listed()
                places = places + self._starts[at]
                scores[places] += _value(counts, self.rest[places], value)
                hits[places] += 1
        brought = np.flatnonzero(hits)
        return brought, scores[brought], hits[brought]

    def counts(self, word: int) -> NDArray[np.uint8]:
        """How often each item holds a word."""
        counts = np.zeros(self.size, np.uint8)
        for at, each in self.holding(word):
            each.spread(counts[self._starts[at] : self._starts[at + 1]])
        return counts


def _value(counts: NDArray[np.uint8], rest: Scores, worth: float) -> Scores:
    """What it counts that items hold a word so often; `rest` tells how long each is, beside the others."""
    often = counts.astype(np.float32)
    longer = often + rest
    often *= worth * (K1 + 1)
    often /= longer
    return often
