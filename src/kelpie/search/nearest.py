"""The items nearest to a query in meaning: every item's signs first, then the vectors of the few that may be best.

The signs are looked at twice: all of them against the query's signs, which is fast, and the best of those against its
numbers, which is sharp; so few vectors must be read, and reading them is what takes the time. Only the signs (48 bytes
for 384 numbers) stay in memory, for the scopes used last. It runs where the database's reads run, off the event loop. A
vector that does not match its checksum is told and never counted.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, select, text

from kelpie.observe import logs
from kelpie.search.fulltext import Kind
from kelpie.search.tables import search_items, search_scopes, search_sketches, search_vectors
from kelpie.search.vectors import Vector

# How many are kept after each look, and at least how many for each result asked for. With 100,000 vectors of real
# sentences and mixtures of them, 10 results and these numbers, 0.989 of the nearest were found (bench/search.py).
BY_SIGNS, BY_SIGNS_PER_RESULT = 2000, 40
BY_NUMBERS, BY_NUMBERS_PER_RESULT = 200, 6
HELD_BYTES_MAX = 64 * 1024 * 1024
_CHUNK = 800

_log = logs.get("search")

Numbers = NDArray[np.int64]
Signs = NDArray[np.uint64]  # a column for each item: going through all of them row by row is what is fast


@dataclass(frozen=True, slots=True)
class _Held:
    """The signs of one scope in the space of one model, as of a version."""

    version: int
    rewrites: int
    items: Numbers
    signs: Signs

    @property
    def size(self) -> int:
        return self.items.nbytes + self.signs.nbytes


_NONE = _Held(-1, -1, np.empty(0, np.int64), np.empty((0, 0), np.uint64))
_I, _S, _V, _N = search_items.c, search_sketches.c, search_vectors.c, search_scopes.c
_VERSIONS = select(_N.scope, _N.version, _N.rewrites).where(
    _N.kind == bindparam("the_kind"), _N.scope.in_(bindparam("scopes", expanding=True))
)
_SKETCHES = (
    select(_S.item, _S.sketch)
    .where(
        _S.kind == bindparam("the_kind"),
        _S.scope == bindparam("the_scope"),
        _S.model == bindparam("the_model"),
        _S.item > bindparam("after"),
    )
    .order_by(_S.item)
)
# The numbers come as one JSON list: hundreds of parameters cost more than the rows they fetch.
_VECTORS = text(
    "SELECT v.item, v.vector, v.checksum FROM json_each(:numbers) AS n JOIN search_vectors AS v"
    " ON v.item = n.value AND v.model = :the_model"
)
_IDS = select(_I.id, _I.item_id, _I.scope).where(_I.id.in_(bindparam("numbers", expanding=True)))


def vector(model: str, values: bytes) -> Vector:
    """The vector with its signs. Raises ValueError when it has no length or numbers that are none."""
    floats = np.frombuffer(values, "<f4")
    length = float(np.linalg.norm(floats))
    if not np.isfinite(length) or length == 0.0:
        raise ValueError("a vector must be of finite numbers that are not all zero")
    unit = (floats / length).astype("<f4")
    return Vector(model, unit.tobytes(), np.packbits(unit > 0).tobytes())


class Nearest:
    """Finds the nearest items; holds the signs of the scopes used last, within a bound."""

    def __init__(self, held_bytes_max: int = HELD_BYTES_MAX) -> None:
        # Used last, last. Reads run on several threads; each single step on it is atomic, and to lose one costs a read.
        self._held: dict[tuple[str, str, str], _Held] = {}
        self._held_bytes_max = held_bytes_max

    def search(
        self,
        tx: Connection,
        kind: Kind,
        scopes: Sequence[str],
        query: Vector,
        limit: int,
        only: Collection[int] | None = None,
    ) -> list[tuple[str, float]]:
        """The items of these scopes nearest to the query, with their cosine, best first.

        `only` are the numbers of the items that may be found at all; without it, all of the scopes.
        """
        held = self._scopes(tx, kind, scopes, query.model)
        if not held:
            return []
        items = held[0].items if len(held) == 1 else np.concatenate([each.items for each in held])
        allowed = None
        if only is not None:
            allowed = np.isin(items, np.fromiter(only, np.int64, len(only)))
            items = items[allowed]
        if items.size > max(BY_NUMBERS, BY_NUMBERS_PER_RESULT * limit):
            signs = held[0].signs if len(held) == 1 else np.concatenate([each.signs for each in held], axis=1)
            items = _likely(items, signs if allowed is None else signs[:, allowed], query, limit)
        return self._rescored(tx, set(scopes), query, items, limit)

    def _rescored(
        self, tx: Connection, scopes: Collection[str], query: Vector, items: Numbers, limit: int
    ) -> list[tuple[str, float]]:
        numbers, rows = _vectors(tx, query.model, items)
        if not numbers:
            return []
        scores = _products(rows, query)
        best = np.argsort(-scores, kind="stable")[:limit]
        wanted = [numbers[at] for at in best]
        ids = {row.id: row.item_id for row in tx.execute(_IDS, {"numbers": wanted}) if row.scope in scopes}
        return [(ids[numbers[at]], float(scores[at])) for at in best if numbers[at] in ids]

    # --- what is held --------------------------------------------------------------------------------------------

    def _scopes(self, tx: Connection, kind: Kind, scopes: Sequence[str], model: str) -> list[_Held]:
        versions: dict[str, Any] = {}
        for start in range(0, len(scopes), _CHUNK):
            found = tx.execute(_VERSIONS, {"the_kind": kind, "scopes": list(scopes[start : start + _CHUNK])})
            versions |= {row.scope: row for row in found}
        held = (self._current(tx, (kind, scope, model), versions[scope]) for scope in scopes if scope in versions)
        return [each for each in held if each.items.size]

    def _current(self, tx: Connection, key: tuple[str, str, str], now: Any) -> _Held:
        known = self._held.get(key, _NONE)
        if (known.version, known.rewrites) == (now.version, now.rewrites):
            self._held.pop(key, None)
            self._held[key] = known
            return known
        # Older snapshots may ask after newer ones were held; what only grew since is a beginning of it.
        grown = known if known.rewrites == now.rewrites and known.version < now.version else _NONE
        found = _read(tx, key, grown, now)
        if known.version < now.version:
            self._keep(key, found)
        return found

    def _keep(self, key: tuple[str, str, str], found: _Held) -> None:
        self._held.pop(key, None)
        self._held[key] = found
        held = list(self._held.items())
        excess = sum(each.size for _, each in held) - self._held_bytes_max
        for old, each in held[:-1]:
            if excess <= 0:
                return
            self._held.pop(old, None)
            excess -= each.size


def _read(tx: Connection, key: tuple[str, str, str], known: _Held, now: Any) -> _Held:
    kind, scope, model = key
    after = int(known.items[-1]) if known.items.size else -1
    rows = tx.execute(_SKETCHES, {"the_kind": kind, "the_scope": scope, "the_model": model, "after": after}).all()
    if not rows:
        return _Held(now.version, now.rewrites, known.items, known.signs)
    items = np.fromiter((row.item for row in rows), np.int64, len(rows))
    signs = _columns([row.sketch for row in rows])
    if known.items.size:
        items, signs = np.concatenate([known.items, items]), np.concatenate([known.signs, signs], axis=1)
    return _Held(now.version, now.rewrites, items, signs)


def _columns(sketches: Sequence[bytes]) -> Signs:
    """The sketches, eight bytes a row; what is missing to a whole number of rows is filled up alike everywhere."""
    width = -len(sketches[0]) % 8 + len(sketches[0])
    joined = b"".join(each.ljust(width, b"\0") for each in sketches)
    return np.ascontiguousarray(np.frombuffer(joined, np.uint64).reshape(len(sketches), -1).T)


def _likely(items: Numbers, signs: Signs, query: Vector, limit: int) -> Numbers:
    """The items whose signs say that they may be among the nearest."""
    first, then = max(BY_SIGNS, BY_SIGNS_PER_RESULT * limit), max(BY_NUMBERS, BY_NUMBERS_PER_RESULT * limit)
    if items.size > first:
        best = np.argpartition(_differing(signs, query.sketch), first)[:first]
        items, signs = items[best], signs[:, best]
    bits = np.unpackbits(np.ascontiguousarray(signs.T).view(np.uint8), axis=1, count=len(query.values) // 4)
    agreeing = _products(bits.astype(np.float32), query)
    return items[np.argpartition(-agreeing, then)[:then]]


def _differing(signs: Signs, query: bytes) -> NDArray[np.uint16]:
    """In how many signs each item differs from the query."""
    differing = np.zeros(signs.shape[1], np.uint16)
    for row, asked in zip(signs, _columns([query]), strict=True):
        differing += np.bitwise_count(row ^ asked)
    return differing


def _products(rows: NDArray[np.float32], query: Vector) -> NDArray[np.float32]:
    """Each row times the query. `@` would wake a thread per core, which costs more than it does and is felt by all."""
    return np.einsum("ij,j->i", rows, np.frombuffer(query.values, "<f4"))


def _vectors(tx: Connection, model: str, items: Numbers) -> tuple[list[int], NDArray[np.float32]]:
    numbers: list[int] = []
    values: list[bytes] = []
    wanted = str(np.sort(items).tolist())
    for item, value, checksum in tx.execute(_VECTORS, {"the_model": model, "numbers": wanted}):
        if crc32(value) != checksum:
            _log.error("a stored vector is damaged and left out", item=item, model=model)
            continue
        numbers.append(item)
        values.append(value)
    return numbers, np.frombuffer(b"".join(values), "<f4").reshape(len(numbers), -1 if numbers else 0)
