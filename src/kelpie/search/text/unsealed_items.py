"""The words of unsealed items, scanned as they are: of one scope, or of all scopes of a search together.

The items of a scope are cached, with a sum over their numbers and checksums. The database computes the same sum in the
same snapshot without reading their words, so a difference shows that there is more to read, and only the newer items
are read if that explains it. A text that does not match its checksum is logged and counts as empty.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, bindparam, func, select, true

from kelpie.observe import logs
from kelpie.search.cache import SizedCache
from kelpie.search.item_lookup import inside
from kelpie.search.tables import search_items
from kelpie.search.text.postings import NOBODY, OFTEN, PostingList, SparsePostings, UnionPostings
from kelpie.search.text.segments import Members, Words
from kelpie.world.statements import Prepared

HELD_BYTES_MAX = 32 * 1024 * 1024
AT_ONCE_MAX = 1_000_000  # comparisons of words: for more, to go word by word takes less memory and time
_CHUNK = 500
_MIXED, _WITHIN = 65_521, 2_147_483_647  # primes: so a product stays within 64 bits, and so does the sum of any number

_log = logs.get("search")
_I = search_items.c


class Sum(NamedTuple):
    """Identifies the unsealed items of a scope: their number, and sums over their numbers and checksums."""

    items: int
    numbers: int
    checksums: int
    pairs: int

    def plus(self, other: "Sum") -> "Sum":
        return Sum(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class UnsealedItems:
    """Items, and all their words one after the other, in the order of the items."""

    sum: Sum
    members: Members
    words: Words
    is_whole: bool  # true if none of them is damaged; else it is not cached, so that a repair is noticed

    @property
    def bytes(self) -> int:
        return self.members.bytes + self.words.nbytes

    def holding(self, words: Sequence[int]) -> dict[int, PostingList]:
        """The items that contain each of these words, and how often."""
        items = self.members.numbers.size
        owners = np.repeat(np.arange(items, dtype=np.int32), self.members.lengths)
        if self.words.size * len(words) > AT_ONCE_MAX:
            return {word: _held(owners[np.flatnonzero(self.words == word)]) for word in words}
        asked = np.array(words, np.uint32)
        same = np.flatnonzero(self.words == asked[:, np.newaxis])
        which = same // self.words.size
        holders = owners[same - which * self.words.size]
        counts = np.bincount(which * items + holders, minlength=asked.size * items)
        table = np.minimum(counts, OFTEN).astype(np.uint8).reshape(asked.size, items)
        return {word: UnionPostings(each) for word, each in zip(words, table, strict=True)}


def _held(holders: NDArray[np.int32]) -> PostingList:
    """By the places of the items that contain a word, in order, each as often as it does."""
    if not holders.size:
        return NOBODY
    starts = np.flatnonzero(np.diff(holders, prepend=-1))
    counts = np.diff(starts, append=holders.size)
    return SparsePostings(holders[starts], np.minimum(counts, OFTEN).astype(np.uint8))


def joined(parts: Sequence[UnsealedItems]) -> UnsealedItems:
    """The items of several as one."""
    if len(parts) == 1:
        return parts[0]
    return UnsealedItems(
        reduce(Sum.plus, (part.sum for part in parts)),
        Members(
            np.concatenate([part.members.numbers for part in parts]),
            np.concatenate([part.members.checksums for part in parts]),
            np.concatenate([part.members.lengths for part in parts]),
        ),
        np.concatenate([part.words for part in parts]),
        all(part.is_whole for part in parts),
    )


def decoded(rows: Sequence[tuple[int, bytes, int]]) -> UnsealedItems:
    """Items from their number, the bytes of their words, and the checksum of these; given in any order."""
    rows = sorted(rows, key=itemgetter(0))  # in order of their numbers, they are found faster
    damaged = [number for number, text, checksum in rows if crc32(text) != checksum]
    for number in damaged:
        _log.error("text_index_damaged", "Part of the text index is damaged and was skipped", number=number)
    texts = [row[1] if row[0] not in damaged else b"" for row in rows]
    numbers = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    checksums = np.fromiter((row[2] for row in rows), np.int64, len(rows))
    lengths = np.fromiter(map(len, texts), np.uint32, len(rows)) // 4
    pairs = numbers % _MIXED * checksums % _WITHIN
    return UnsealedItems(
        Sum(len(rows), *(int(each.sum()) for each in (numbers, checksums, pairs))),
        Members(numbers, checksums.astype(np.uint32), lengths),
        np.frombuffer(b"".join(texts), "<u4"),
        not damaged,
    )


# --- read -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _sums(scopes: Select[Any] | None) -> Callable[..., Sequence[Any]]:
    """The sums of one scope, or of each scope that a statement gives."""
    pairs = _I.id % _MIXED * _I.checksum % _WITHIN
    found = (
        select(_I.scope, func.count(), func.sum(_I.id), func.sum(_I.checksum), func.sum(pairs))
        .where(_I.kind == bindparam("the_kind"), inside(_I.scope, scopes), _I.loose == true())
        .group_by(_I.scope)
    )
    return Prepared(found).rows if scopes is None else lambda tx, bound: tx.execute(found, bound).all()


_ALL = select(_I.scope, _I.id, _I.words, _I.checksum).where(
    _I.kind == bindparam("the_kind"), _I.scope.in_(bindparam("scopes", expanding=True)), _I.loose == true()
)
_ONE = select(_I.id, _I.words, _I.checksum).where(
    _I.kind == bindparam("the_kind"), _I.scope == bindparam("the_scope"), _I.loose == true()
)
_SINCE = _ONE.where(_I.id > bindparam("after"))


class CachedUnsealedItems:
    """Cache of the unsealed items of the scopes used last."""

    def __init__(self, bytes_max: int) -> None:
        self._held: SizedCache[tuple[str, str], UnsealedItems] = SizedCache(bytes_max)

    def of(self, tx: Connection, scopes: Select[Any] | None, bound: Mapping[str, Any]) -> UnsealedItems | None:
        """The unsealed items of `the_scope`, or of the scopes that a statement gives."""
        kind, scope = bound["the_kind"], bound.get("the_scope")
        if scope is not None and self._held.get((kind, scope)) is None:
            return self._read(tx, kind, scope)
        now = {row[0]: Sum(*map(int, row[1:])) for row in _sums(scopes)(tx, bound)}
        found = {scope: self._current(tx, kind, scope, each) for scope, each in now.items()}
        unknown = [scope for scope, each in found.items() if each is None]
        found |= self._read_many(tx, kind, unknown)
        parts = [each for each in found.values() if each is not None]
        return joined(parts) if parts else None

    def _current(self, tx: Connection, kind: str, scope: str, now: Sum) -> UnsealedItems | None:
        """The cached items of a scope with the newer ones; None when that does not explain the difference."""
        held = self._held.get((kind, scope))
        if held is None or held.sum == now:
            return held
        after = {"the_kind": kind, "the_scope": scope, "after": int(held.members.numbers.max())}
        added = decoded(tx.execute(_SINCE, after).all())
        if held.sum.plus(added.sum) != now:
            return None
        return self._keep(kind, scope, joined([held, added]))

    def _read(self, tx: Connection, kind: str, scope: str) -> UnsealedItems | None:
        rows = tx.execute(_ONE, {"the_kind": kind, "the_scope": scope}).all()
        return self._keep(kind, scope, decoded(rows)) if rows else None

    def _read_many(self, tx: Connection, kind: str, scopes: Sequence[str]) -> dict[str, UnsealedItems]:
        rows: dict[str, list[tuple[int, bytes, int]]] = {}
        for start in range(0, len(scopes), _CHUNK):
            for scope, *row in tx.execute(
                _ALL, {"the_kind": kind, "scopes": list(scopes[start : start + _CHUNK])}
            ).all():
                rows.setdefault(scope, []).append((row[0], row[1], row[2]))
        return {scope: self._keep(kind, scope, decoded(some)) for scope, some in rows.items()}

    def _keep(self, kind: str, scope: str, found: UnsealedItems) -> UnsealedItems:
        if found.is_whole:
            self._held.put((kind, scope), found)
        return found
