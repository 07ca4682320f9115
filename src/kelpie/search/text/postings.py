"""Postings of a word: the items of a segment that contain it, read from the row of the word.

A rare word has a list of places; a common one has a bit for each item, of which only the requested ones are read,
unless the word is to match all items that contain it.
"""

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

OFTEN = 255  # a word counts no more than so often in one item
BYTES_OF_POSTING = 3
HEAD = struct.Struct("<II")  # the number of rare words in a row, and of common ones
MANY_HEAD = struct.Struct("<IIII")  # such a word, how many hold it, where its bits are, how many more than once
MOST = 0xFFFFFFFF  # so many hold it more than once that there is a number for each item, and no bits

Counts = NDArray[np.uint8]
Places = NDArray[np.integer[Any]]

_NO_PLACES, _NO_COUNTS = np.empty(0, np.uint16), np.empty(0, np.uint8)


class ChosenPlaces:
    """Some places of a segment of so many items, in order, to look words up for."""

    def __init__(self, places: NDArray[np.intp], items: int) -> None:
        self.places = places
        self.items = items

    @cached_property
    def bytes(self) -> NDArray[np.intp]:
        """The byte that contains the bit of each place."""
        return self.places >> 3

    @cached_property
    def shifts(self) -> NDArray[np.uint8]:
        """The shift of each place's bit in that byte."""
        return (~self.places & 7).astype(np.uint8)


class PostingList(Protocol):
    """The items that contain a word, and how often."""

    @property
    def size(self) -> int:
        """Number of items that contain it."""
        ...

    def mark(self, items: NDArray[np.bool_]) -> None:
        """Sets the flags of the items of the segment that contain it."""
        ...

    def at(self, chosen: ChosenPlaces) -> Counts:
        """Counts of the word in each of the chosen items."""
        ...


@dataclass(frozen=True, slots=True)
class SparsePostings:
    """The places of the items that contain a word, in order."""

    places: Places
    counts: Counts

    @property
    def size(self) -> int:
        return self.places.size

    def mark(self, items: NDArray[np.bool_]) -> None:
        items[self.places] = True

    def at(self, chosen: ChosenPlaces) -> Counts:
        every = np.zeros(chosen.items, np.uint8)  # a byte for each, which is faster than to look for those chosen
        every[self.places] = self.counts
        return every.take(chosen.places)


@dataclass(frozen=True, slots=True)
class DensePostings:
    """A bit for each item of the segment, and the items that contain the word more than once."""

    size: int
    items: int
    bits: Counts
    often: SparsePostings

    def listed(self) -> tuple[NDArray[np.intp], Counts]:
        """The places of the items that contain it, in order, and how often each does."""
        held = np.unpackbits(self.bits, count=self.items)
        places = np.flatnonzero(held.view(np.bool_))
        if self.often.size:
            held[self.often.places] = self.often.counts
        return places, held[places]

    def mark(self, items: NDArray[np.bool_]) -> None:
        items |= np.unpackbits(self.bits, count=self.items).view(np.bool_)

    def at(self, chosen: ChosenPlaces) -> Counts:
        held = self.bits.take(chosen.bytes) >> chosen.shifts & np.uint8(1)
        return np.maximum(held, self.often.at(chosen)) if self.often.size else held


@dataclass(frozen=True, slots=True)
class UnionPostings:
    """Counts of a word for every item of the segment."""

    counts: Counts

    @property
    def size(self) -> int:
        return int(np.count_nonzero(self.counts))

    def listed(self) -> tuple[NDArray[np.intp], Counts]:
        """The places of the items that contain it, in order, and how often each does."""
        places = np.flatnonzero(self.counts)
        return places, self.counts[places]

    def mark(self, items: NDArray[np.bool_]) -> None:
        items |= self.counts.astype(np.bool_)

    def at(self, chosen: ChosenPlaces) -> Counts:
        return self.counts.take(chosen.places)


NOBODY = SparsePostings(_NO_PLACES, _NO_COUNTS)


def holding(stored: bytes, size: int, word: int) -> PostingList:
    """The postings of a word, from its row in a segment of so many items."""
    few, many = HEAD.unpack_from(stored)
    index = np.frombuffer(stored, "<u4", 2 * few, HEAD.size)
    at = int(index[:few].searchsorted(np.uint32(word)))
    postings = int(index[-1]) if few else 0
    body = HEAD.size + 8 * few
    if at < few and index[at] == word:
        start, end = int(index[few + at - 1]) if at else 0, int(index[few + at])
        return _few(stored, end - start, body + 2 * start, body + 2 * postings + start)
    body += BYTES_OF_POSTING * postings
    for at in range(many):
        found, *rest = MANY_HEAD.unpack_from(stored, body + MANY_HEAD.size * at)
        if found == word:
            return of_many(stored, size, *rest)
    return NOBODY


def of_many(stored: bytes, size: int, held: int, start: int, more: int) -> DensePostings | UnionPostings:
    """The postings of a common word in a segment of so many items, by its head in the row."""
    if more == MOST:
        return UnionPostings(np.frombuffer(stored, np.uint8, size, start))
    places_at = start + -(-size // 8)
    bits = np.frombuffer(stored, np.uint8, places_at - start, start)
    often = _few(stored, more, places_at, places_at + 2 * more) if more else NOBODY
    return DensePostings(held, size, bits, often)


def _few(stored: bytes, count: int, places_at: int, counts_at: int) -> SparsePostings:
    places = np.frombuffer(stored, "<u2", count, places_at)
    return SparsePostings(places, np.frombuffer(stored, np.uint8, count, counts_at))
