"""Segments: the words of many items, as arrays and as the bytes that are stored.

The postings of a segment are in rows by the highest bits of the words' numbers, so that a search reads a few kilobytes
for each word (`postings`). A segment is made once and never changed. This is arithmetic only: other modules read and
write rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from kelpie.search.text.postings import BYTES_OF_POSTING, HEAD, MANY_HEAD, MOST, OFTEN, of_many
from kelpie.search.text.segment_queue import BITS_MAX

SIZE_MAX = 65_536  # items: their places have 16 bits
ROW_BYTES = 4096  # approximate size of a row of postings
WORD_BITS = 32
MANY = 24  # a word that more than one item of so many holds has a bit for each item, which is shorter

Words = NDArray[np.uint32]
_ITEM = np.dtype([("number", "<i8"), ("checksum", "<u4"), ("length", "<u4")])


@dataclass(frozen=True, slots=True)
class Members:
    """The items of a segment by their places in it: their numbers, the checksums of their words, their word counts."""

    numbers: NDArray[np.int64]
    checksums: NDArray[np.uint32]
    lengths: NDArray[np.uint32]

    def packed(self) -> bytes:
        rows = np.empty(self.numbers.size, _ITEM)
        rows["number"], rows["checksum"], rows["length"] = self.numbers, self.checksums, self.lengths
        return rows.tobytes()

    @staticmethod
    def unpacked(stored: bytes) -> "Members":
        rows = np.frombuffer(stored, _ITEM)
        return Members(*(np.ascontiguousarray(rows[name]) for name in ("number", "checksum", "length")))

    @property
    def bytes(self) -> int:
        return self.numbers.size * _ITEM.itemsize

    @property
    def words(self) -> int:
        """Number of words of all items together."""
        return int(self.lengths.sum())


@dataclass(frozen=True, slots=True)
class Postings:
    """Words and the places of items that contain them; for a segment in the order of the words' numbers."""

    words: Words
    places: NDArray[np.uint16]
    counts: NDArray[np.uint8]

    def part(self, start: int, end: int) -> "Postings":
        return Postings(self.words[start:end], self.places[start:end], self.counts[start:end])


_NONE = Postings(np.empty(0, np.uint32), np.empty(0, np.uint16), np.empty(0, np.uint8))


def from_texts(texts: Sequence[bytes]) -> Postings:
    """The segment of items whose words are in the form of `tokenizer.packed`."""
    flat = np.frombuffer(b"".join(texts), "<u4")
    lengths = np.fromiter((len(each) // 4 for each in texts), np.int64, len(texts))
    owners = np.repeat(np.arange(len(texts), dtype=np.uint64), lengths)
    held, counts = np.unique(flat.astype(np.uint64) << np.uint64(16) | owners, return_counts=True)
    return _split(held, np.minimum(counts, OFTEN).astype(np.uint8))


def together(parts: Sequence[Postings]) -> Postings:
    """Parts of one segment; the order of their words is theirs."""
    if not parts:
        return _NONE
    columns = [(part.words, part.places, part.counts) for part in parts]
    words, places, counts = (np.concatenate(each) for each in zip(*columns, strict=True))
    return Postings(words, places, counts)


def joined(parts: Sequence[Postings], moved: Sequence[NDArray[np.int64]]) -> Postings:
    """Several merged into one; `moved` are the new places of each one's items, less than 0 for removed ones."""
    keys: list[NDArray[np.uint64]] = []
    counts: list[NDArray[np.uint8]] = []
    for part, places in zip(parts, moved, strict=True):
        new = places[part.places]
        kept = new >= 0
        keys.append(part.words[kept].astype(np.uint64) << np.uint64(16) | new[kept].astype(np.uint64))
        counts.append(part.counts[kept])
    key = np.concatenate(keys)
    order = np.argsort(key)
    return _split(key[order], np.concatenate(counts)[order])


def _split(keys: NDArray[np.uint64], counts: NDArray[np.uint8]) -> Postings:
    return Postings((keys >> np.uint64(16)).astype(np.uint32), (keys & np.uint64(0xFFFF)).astype(np.uint16), counts)


# --- as bytes -------------------------------------------------------------------------------------------------------


def bits_for(postings: int) -> int:
    """The number of rows for so many postings, as a power of two."""
    rows = max(1, postings * BYTES_OF_POSTING * 2 // ROW_BYTES)
    return min(BITS_MAX, (rows - 1).bit_length())


def row_of(word: int, bits: int) -> int:
    """The row of a segment that contains the postings of a word."""
    return word >> (WORD_BITS - bits)


def rows(
    postings: Postings, size: int, bits: int, first: int = 0, count: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """The rows of a segment of so many items, all or `count` from the first one on, except empty ones."""
    numbers = np.arange(first, first + (1 << bits if count is None else count) + 1, dtype=np.uint64)
    edges = np.searchsorted(postings.words, numbers << np.uint64(WORD_BITS - bits))
    for number, start, end in zip(numbers.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=False):
        if end > start:
            yield number, _row(postings.part(start, end), size)


def _row(postings: Postings, size: int) -> bytes:
    """First the rare words, with the places of their items; then the common ones, with a bit for each item."""
    words, starts = np.unique(postings.words, return_index=True)
    held = np.diff(starts, append=postings.words.size)
    many = held * MANY > size
    few = ~np.repeat(many, held)
    laid = (
        words[~many].astype("<u4"),
        np.cumsum(held[~many]).astype("<u4"),
        postings.places[few].astype("<u2"),
        postings.counts[few],
    )
    row = HEAD.pack(int(words.size - many.sum()), int(many.sum())) + b"".join(each.tobytes() for each in laid)
    heads, bodies, at = list[bytes](), list[bytes](), len(row) + MANY_HEAD.size * int(many.sum())
    for word, start, count in zip(words[many].tolist(), starts[many].tolist(), held[many].tolist(), strict=True):
        more, body = _of_many(postings.part(start, start + count), size)
        heads.append(MANY_HEAD.pack(word, count, at, more))
        bodies.append(body)
        at += len(body)
    return b"".join([row, *heads, *bodies])


def _of_many(postings: Postings, size: int) -> tuple[int, bytes]:
    """The number of items that contain a word more than once, a bit for each item of the segment, and those; or how
    often each does, where that is shorter."""
    held = np.zeros(size, np.uint8)
    held[postings.places] = postings.counts
    more = postings.counts > 1
    count = int(np.count_nonzero(more))
    if count * BYTES_OF_POSTING > size:
        return MOST, held.tobytes()
    places, counts = postings.places[more].astype("<u2"), postings.counts[more]
    return count, np.packbits(held > 0).tobytes() + places.tobytes() + counts.tobytes()


def postings_of(stored: bytes, size: int) -> Postings:
    """All postings of a row, in any order."""
    few, many = HEAD.unpack_from(stored)
    words, ends = np.frombuffer(stored, "<u4", 2 * few, HEAD.size).reshape(2, few)
    postings, body = int(ends[-1]) if few else 0, HEAD.size + 8 * few
    places = np.frombuffer(stored, "<u2", postings, body)
    counts = np.frombuffer(stored, np.uint8, postings, body + 2 * postings)
    parts = [Postings(np.repeat(words, np.diff(ends, prepend=0)), places, counts)]
    body += BYTES_OF_POSTING * postings
    for at in range(many):
        word, *rest = MANY_HEAD.unpack_from(stored, body + MANY_HEAD.size * at)
        held, often = of_many(stored, size, *rest).listed()
        parts.append(Postings(np.full(held.size, word, np.uint32), held.astype(np.uint16), often))
    return together(parts)


def is_whole(stored: bytes, checksum: int) -> bool:
    """Checks whether bytes match their checksum."""
    return crc32(stored) == checksum
