"""Vector search: the items nearest to a query, by every item's signs first, then by the vectors of the best few.

The signs are compared twice: all of them with the query's signs, which is fast, and the best of those with its numbers,
which is precise; so few vectors must be read, and reading them takes the time. Only the signs (48 bytes for 384
numbers) stay in memory, for the scopes used last. It runs on the database's reader threads, off the event loop.
"""

import json
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, select

from kelpie.search.cache import SizedCache
from kelpie.search.item_lookup import listed
from kelpie.search.queries import LikelyItems, Near
from kelpie.search.tables import search_scopes, search_sketches, search_vectors
from kelpie.search.text.fulltext import Kind
from kelpie.search.vector_candidates import NUMBERED, Candidates, other_numbers, products
from kelpie.search.vector_rows import Vector

# Items kept after each comparison, and the minimum for each requested item. With 100,000 vectors of real
# sentences and mixtures of them, and these numbers, 0.990 of the 10 nearest were found (bench/search.py).
BY_SIGNS, BY_SIGNS_PER_RESULT = 1500, 30
BY_NUMBERS, BY_NUMBERS_PER_RESULT = 200, 4
GUESS = 1.2533  # the cosine of two vectors, by that of one with the other's signs: the root of pi / 2
HELD_BYTES_MAX = 64 * 1024 * 1024

Numbers = NDArray[np.int64]
Signs = NDArray[np.uint64]  # a column for each item: going through all of them row by row is what is fast


@dataclass(frozen=True, slots=True)
class _ScopeSigns:
    """The signs of one scope's vectors of one model, as of a version."""

    version: int
    rewrites: int
    items: Numbers
    signs: Signs

    @property
    def bytes(self) -> int:
        return self.items.nbytes + self.signs.nbytes


_NONE = _ScopeSigns(-1, -1, np.empty(0, np.int64), np.empty((0, 0), np.uint64))
_S, _V, _N = search_sketches.c, search_vectors.c, search_scopes.c
_VERSIONS = select(_N.scope, _N.version, _N.rewrites).where(
    _N.kind == bindparam("the_kind"), _N.scope.in_(listed("scopes"))
)
_OF_SCOPE = (
    _S.kind == bindparam("the_kind"),
    _S.scope == bindparam("the_scope"),
    _S.model == bindparam("the_model"),
)
_SKETCHES = select(_S.item, _S.sketch).where(*_OF_SCOPE, _S.item > bindparam("after")).order_by(_S.item)
_ALL = Candidates(
    select(_V.item, _V.vector, _V.checksum)
    .join(search_sketches, (_V.item == _S.item) & (_V.model == _S.model))
    .where(*_OF_SCOPE)
    .order_by(_S.item)
    .limit(bindparam("most"))
)


def vector(model: str, values: bytes) -> Vector:
    """The vector with its signs. Raises ValueError when its length is zero or its numbers are not finite."""
    floats = np.frombuffer(values, "<f4")
    length = float(np.linalg.norm(floats))
    if not np.isfinite(length) or length == 0.0:
        raise ValueError("a vector must contain finite numbers that are not all zero")
    unit = (floats / length).astype("<f4")
    return Vector(model, unit.tobytes(), np.packbits(unit > 0).tobytes())


class Nearest:
    """Finds the nearest items; caches the signs of the scopes used last that are not small, within a limit."""

    def __init__(self, held_bytes_max: int = HELD_BYTES_MAX) -> None:
        self._held: SizedCache[tuple[str, str, str], _ScopeSigns] = SizedCache(held_bytes_max)

    def search(
        self,
        tx: Connection,
        kind: Kind,
        scopes: Sequence[str],
        query: Vector,
        limit: int,
        only: Collection[int] | None = None,
    ) -> list[Near]:
        """The numbers of the items of these scopes nearest to the query, with their cosine, best first.

        `only` are the numbers of the items that may be found at all; without it, all of the scopes. Raises StorageError
        when the model gives other vectors than the stored ones.
        """
        few = max(BY_NUMBERS, BY_NUMBERS_PER_RESULT * limit)
        near = self._small(tx, kind, scopes, query, few, only, limit)
        if near is not None:
            return near
        items, signs = self._candidates(tx, kind, scopes, query, only)
        if items.size > few:
            at, guesses = _guessed(signs, query, max(BY_SIGNS, BY_SIGNS_PER_RESULT * limit))
            items = items[at[np.argpartition(-guesses, few)[:few]]]
        wanted = {"the_model": query.model, "numbers": str(np.sort(items).tolist())}
        return (NUMBERED.nearest(tx, wanted, query, limit) or []) if items.size else []

    def likely(
        self,
        tx: Connection,
        kind: Kind,
        scopes: Sequence[str],
        query: Vector,
        limit: int,
        only: Collection[int] | None = None,
    ) -> LikelyItems:
        """The items of these scopes that are likely the nearest, by their signs; in a small scope all are compared.

        Raises StorageError when the model gives other vectors than the stored ones.
        """
        near = self._small(tx, kind, scopes, query, BY_NUMBERS, only)
        if near is not None:
            return LikelyItems(near[:limit], dict(near))
        items, signs = self._candidates(tx, kind, scopes, query, only)
        if not items.size:
            return LikelyItems()
        at, guesses = _guessed(signs, query, max(BY_SIGNS, BY_SIGNS_PER_RESULT * limit))
        if at.size > limit:
            best = np.argpartition(-guesses, limit - 1)[:limit]
            at, guesses = at[best], guesses[best]
        order = np.lexsort((items[at], -guesses))
        return LikelyItems(list(zip(items[at[order]].tolist(), guesses[order].tolist(), strict=True)))

    def _small(
        self,
        tx: Connection,
        kind: Kind,
        scopes: Sequence[str],
        query: Vector,
        few: int,
        only: Collection[int] | None,
        limit: int | None = None,
    ) -> list[Near] | None:
        """The nearest of a small scope, for which no signs are needed; None if it is not one."""
        if len(scopes) != 1 or only is not None or self._held.get((kind, scopes[0], query.model)) is not None:
            return None
        of_scope = {"the_kind": kind, "the_scope": scopes[0], "the_model": query.model, "most": few + 1}
        return _ALL.nearest(tx, of_scope, query, limit, few)

    def _candidates(
        self, tx: Connection, kind: Kind, scopes: Sequence[str], query: Vector, only: Collection[int] | None
    ) -> tuple[Numbers, Signs]:
        """The items of the scopes that may be found, and their signs."""
        held = self._scopes(tx, kind, scopes, query.model)
        if not held:
            return _NONE.items, _NONE.signs
        if any(each.signs.shape[0] != _height(query.sketch) for each in held):
            raise other_numbers(query)
        items = held[0].items if len(held) == 1 else np.concatenate([each.items for each in held])
        signs = held[0].signs if len(held) == 1 else np.concatenate([each.signs for each in held], axis=1)
        if only is None:
            return items, signs
        allowed = np.isin(items, np.fromiter(only, np.int64, len(only)))
        return items[allowed], signs[:, allowed]

    def cosines(self, tx: Connection, query: Vector, numbers: Collection[int]) -> dict[int, float]:
        """The cosine to the query of those of these items that have a vector of its model.

        Raises StorageError when the model gives other vectors than the stored ones.
        """
        wanted = {"the_model": query.model, "numbers": str(sorted(numbers))}
        return dict(NUMBERED.nearest(tx, wanted, query) or ()) if numbers else {}

    # --- cache ----------------------------------------------------------------------------------------------------

    def _scopes(self, tx: Connection, kind: Kind, scopes: Sequence[str], model: str) -> list[_ScopeSigns]:
        rows = tx.execute(_VERSIONS, {"the_kind": kind, "scopes": json.dumps(scopes)}).all()
        versions = {row.scope: row for row in rows}
        held = (self._current(tx, (kind, scope, model), versions[scope]) for scope in scopes if scope in versions)
        return [each for each in held if each.items.size]

    def _current(self, tx: Connection, key: tuple[str, str, str], now: Any) -> _ScopeSigns:
        known = self._held.get(key) or _NONE
        if (known.version, known.rewrites) == (now.version, now.rewrites):
            return known
        # Older snapshots may ask after newer ones were cached; if the scope only grew, the beginning is valid.
        grown = known if known.rewrites == now.rewrites and known.version < now.version else _NONE
        found = _read(tx, key, grown, now)
        if known.version < now.version:
            self._held.put(key, found)
        return found


def _read(tx: Connection, key: tuple[str, str, str], known: _ScopeSigns, now: Any) -> _ScopeSigns:
    kind, scope, model = key
    after = int(known.items[-1]) if known.items.size else -1
    rows = tx.execute(_SKETCHES, {"the_kind": kind, "the_scope": scope, "the_model": model, "after": after}).all()
    if not rows:
        return _ScopeSigns(now.version, now.rewrites, known.items, known.signs)
    items = np.fromiter((row.item for row in rows), np.int64, len(rows))
    signs = _columns([row.sketch for row in rows])
    if known.items.size:
        items = np.concatenate([known.items, items])
        alike = known.signs.shape[0] == signs.shape[0]
        signs = np.concatenate([known.signs, signs], axis=1) if alike else _no_rows(items.size)
    return _ScopeSigns(now.version, now.rewrites, items, signs)


def _height(sketch: bytes) -> int:
    """Number of rows that it takes."""
    return -(-len(sketch) // 8)


def _columns(sketches: Sequence[bytes]) -> Signs:
    """The signs, eight bytes a row; the last row is padded alike everywhere. Signs of several lengths have no rows."""
    width = 8 * max(map(_height, (sketches[0], sketches[-1])))
    joined = b"".join(each.ljust(width, b"\0") for each in sketches)
    if len(joined) != width * len(sketches):
        return _no_rows(len(sketches))
    return np.ascontiguousarray(np.frombuffer(joined, np.uint64).reshape(len(sketches), -1).T)


def _no_rows(items: int) -> Signs:
    """The entry for vectors that cannot be compared: no query has so few signs."""
    return np.empty((0, items), np.uint64)


def _guessed(signs: Signs, query: Vector, most: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """The places of the items that may be among the nearest, up to so many, and guesses of their cosines."""
    if signs.shape[1] > most:
        at = _least(_differing(signs, query.sketch), most)
        signs = signs[:, at]
    else:
        at = np.arange(signs.shape[1])
    numbers = len(query.values) // 4
    bits = np.unpackbits(np.ascontiguousarray(signs.T).view(np.uint8), axis=1, count=numbers)
    total = float(np.frombuffer(query.values, "<f4").sum())
    return at, (products(bits, query) * 2 - total) * np.float32(GUESS / numbers**0.5)


def _differing(signs: Signs, query: bytes) -> NDArray[np.uint16]:
    """Number of signs in which each item differs from the query."""
    count = signs.shape[1]
    differing, bits, each = np.zeros(count, np.uint16), np.empty(count, np.uint64), np.empty(count, np.uint8)
    for row, asked in zip(signs, _columns([query]), strict=True):
        differing += np.bitwise_count(np.bitwise_xor(row, asked, out=bits), out=each)
    return differing


def _least(differing: NDArray[np.uint16], count: int) -> NDArray[np.intp]:
    """The positions of the lowest numbers, so many of them. There are few different values, so trying some is fast."""
    bound = bisect_left(range(differing.max()), count, key=lambda most: np.count_nonzero(differing <= most))
    among = np.flatnonzero(differing <= bound)
    return among[np.argsort(differing[among], kind="stable")[:count]]
