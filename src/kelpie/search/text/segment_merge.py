"""Sealing of unsealed items into segments, and merging of segments into larger ones, so that a search reads few rows.

Each step is a transaction of its own and leaves the index complete, with the same items as before; the long work on
large segments is done beforehand, in a read, because segments never change. Removed items are left out on the way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, false, func, insert, select, true, update

from kelpie.observe import logs
from kelpie.search.tables import search_items, search_postings, search_segments
from kelpie.search.text import segment_queue, segments
from kelpie.search.text.segment_queue import BITS_MAX
from kelpie.search.text.segments import SIZE_MAX, Members, Postings

SEALED_MAX = 2048  # loose items that are made into one segment: 15 ms
TIERS = (512, 4096, 32_768)  # items up to which a segment is of each tier; beyond, it is as large as it gets
TOGETHER = (4, 4, 2)  # so many of a tier are merged
SLICES_BITS = 4  # a merge goes through the words in so many pieces, as a power of two, for the sake of memory
_CHUNK = 500

_log = logs.get("search")

_I, _S, _P = search_items.c, search_segments.c, search_postings.c
_OF_SCOPE = _S.kind == bindparam("the_kind"), _S.scope == bindparam("the_scope")
_LOOSE = (
    select(_I.id, _I.words, _I.checksum)
    .where(_I.kind == bindparam("the_kind"), _I.scope == bindparam("the_scope"), _I.loose == true())
    .order_by(_I.id)
    .limit(bindparam("most"))
)
_BIND = update(search_items).where(_I.id.in_(bindparam("numbers", expanding=True))).values(loose=False, words=b"")
_PUT = insert(search_segments)
_PUT_POSTINGS = insert(search_postings)


def seal(tx: Connection, kind: str, scope: str) -> bool:
    """Seals unsealed items of a scope into a segment, except damaged ones; True when there may be more of them."""
    rows = _loose(tx, kind, scope)
    if not rows:
        return False
    texts = [row.words for row in rows]
    members = Members(
        np.fromiter((row.id for row in rows), np.int64, len(rows)),
        np.fromiter((row.checksum for row in rows), np.uint32, len(rows)),
        np.fromiter((len(text) // 4 for text in texts), np.uint32, len(rows)),
    )
    postings = segments.from_texts(texts)
    bits = segments.bits_for(postings.words.size)
    _put(tx, kind, scope, members, bits, list(segments.rows(postings, len(rows), bits)))
    for numbers in _chunks(members.numbers):
        tx.execute(_BIND, {"numbers": numbers})
    return True


def _loose(tx: Connection, kind: str, scope: str) -> list[Any]:
    rows = tx.execute(_LOOSE, {"the_kind": kind, "the_scope": scope, "most": SEALED_MAX})
    return [row for row in rows if segments.is_whole(row.words, row.checksum)]


def _chunks(numbers: NDArray[np.int64]) -> Iterator[list[int]]:
    for start in range(0, numbers.size, _CHUNK):
        yield numbers[start : start + _CHUNK].tolist()


def _put(
    tx: Connection, kind: str, scope: str, members: Members, bits: int, rows: Sequence[tuple[int, bytes]], gone: int = 0
) -> None:
    stored = members.packed()
    row = {
        "kind": kind,
        "scope": scope,
        "size": members.numbers.size,
        "gone": gone,
        "first": int(members.numbers.min()),
        "last": int(members.numbers.max()),
        "bits": bits,
        "members": stored,
        "checksum": crc32(stored),
    }
    made = tx.execute(_PUT, row).inserted_primary_key
    assert made is not None
    if rows:
        tx.execute(
            _PUT_POSTINGS,
            [{"place": (made[0] << BITS_MAX) + at, "postings": each, "checksum": crc32(each)} for at, each in rows],
        )


# --- merged ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MergedSegments:
    """The replacement for some segments of a scope; nothing, when none of their items is left."""

    kind: str
    scope: str
    replaced: tuple[int, ...]
    gone: int  # number of their items that were known to be removed
    members: Members
    bits: int
    rows: list[tuple[int, bytes]]


_SEGMENTS = select(search_segments).where(*_OF_SCOPE).order_by(_S.id)
_THERE = select(_I.id, _I.checksum).where(
    _I.id.in_(bindparam("numbers", expanding=True)),
    _I.kind.concat("") == bindparam("the_kind"),
    _I.scope.concat("") == bindparam("the_scope"),
    _I.loose == false(),
)
_POSTINGS = (
    select(_P.place, _P.postings, _P.checksum)
    .where(_P.place >= bindparam("low"), _P.place < bindparam("high"))
    .order_by(_P.place)
)
_GONE = select(func.count(), func.sum(_S.gone)).where(_S.id.in_(bindparam("ids", expanding=True)))


def merge(tx: Connection, kind: str, scope: str) -> MergedSegments | None:
    """The next merge of a scope, computed; None when nothing is to be merged. It changes nothing.

    Damaged segments stay as they are: the intact items in them are still found.
    """
    rows = tx.execute(_SEGMENTS, {"the_kind": kind, "the_scope": scope}).all()
    chosen = _chosen([row for row in rows if segments.is_whole(row.members, row.checksum)])
    if not chosen:
        return None
    members, moved = _left(tx, kind, scope, [Members.unpacked(row.members) for row in chosen])
    bits = min(BITS_MAX, (sum(1 << row.bits for row in chosen) - 1).bit_length())
    sliced, laid = min(bits, SLICES_BITS), list[tuple[int, bytes]]()
    for number in range(1 << sliced):
        parts = [_slice(tx, row, number, sliced) for row in chosen]
        if any(part is None for part in parts):
            _log.error(
                "text_index_merge_skipped",
                "Segment of the text index is damaged and was not merged",
                kind=kind,
                scope=scope,
            )
            return None
        count = 1 << (bits - sliced)
        postings = segments.joined([part for part in parts if part], moved)
        laid += segments.rows(postings, members.numbers.size, bits, number * count, count)
    return MergedSegments(
        kind, scope, tuple(row.id for row in chosen), sum(row.gone for row in chosen), members, bits, laid
    )


def replace(tx: Connection, merged: MergedSegments) -> None:
    """Replaces the segments that a merged one was made of, if they all still exist."""
    count, gone = tx.execute(_GONE, {"ids": list(merged.replaced)}).one()
    if count < len(merged.replaced):
        return
    segment_queue.drop(tx, merged.replaced)
    if merged.members.numbers.size:
        since = gone - merged.gone
        _put(tx, merged.kind, merged.scope, merged.members, merged.bits, merged.rows, since)


def _chosen(rows: Sequence[Any]) -> list[Any]:
    for row in rows:
        if row.gone > segment_queue.GONE_MAX * row.size:
            return [row]
    for tier, together in enumerate(TOGETHER):
        smallest = TIERS[tier - 1] if tier else 0
        of_tier = [row for row in rows if smallest < row.size <= TIERS[tier]]
        if len(of_tier) >= together:
            sizes = accumulate(row.size for row in of_tier)
            return [row for row, size in zip(of_tier, sizes, strict=True) if size <= SIZE_MAX]
    return []


def _left(tx: Connection, kind: str, scope: str, parts: Sequence[Members]) -> tuple[Members, list[NDArray[np.int64]]]:
    """The items that still exist, and the new places of the items of each part, -1 for removed ones."""
    kept: list[NDArray[np.bool_]] = []
    for part in parts:
        there: set[tuple[int, int]] = set()
        for numbers in _chunks(part.numbers):
            rows = tx.execute(_THERE, {"the_kind": kind, "the_scope": scope, "numbers": numbers})
            there |= {(row.id, row.checksum) for row in rows}
        pairs = zip(part.numbers.tolist(), part.checksums.tolist(), strict=True)
        kept.append(np.fromiter((pair in there for pair in pairs), np.bool_, part.numbers.size))
    every = np.concatenate(kept)
    places = np.where(every, np.cumsum(every) - 1, -1)
    members = Members(
        np.concatenate([part.numbers for part in parts])[every],
        np.concatenate([part.checksums for part in parts])[every],
        np.concatenate([part.lengths for part in parts])[every],
    )
    return members, np.split(places, np.cumsum([part.numbers.size for part in parts])[:-1])


def _slice(tx: Connection, segment: Any, number: int, sliced: int) -> Postings | None:
    """The postings of at least those words of a segment that are in a slice of all words; None when one is damaged."""
    less = segment.bits - sliced
    low, high = (at << less if less >= 0 else at >> -less for at in (number, number + 1))
    base = segment.id << BITS_MAX
    rows = tx.execute(_POSTINGS, {"low": base + low, "high": base + max(high, low + 1)}).all()
    if not all(segments.is_whole(row.postings, row.checksum) for row in rows):
        return None
    return segments.together([segments.postings_of(row.postings, segment.size) for row in rows])
