"""The items nearest to a query in meaning: every candidate's signs first, then the vectors of the few that may be best.

Only the signs (48 bytes for 384 numbers) stay in memory, for the scopes used last; the vectors are read when they are
rescored. It runs where the database's reads run, off the event loop. A vector that does not match its checksum is told
and never counted.
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

EXACT_MAX = 600  # up to so many candidates every vector is compared
CANDIDATES = 800
PER_RESULT = 20  # candidates at least, for each result asked for
HELD_BYTES_MAX = 64 * 1024 * 1024
_CHUNK = 800

_log = logs.get("search")

Numbers = NDArray[np.int64]
Bits = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Held:
    """The signs of one scope in the space of one model, as of a version."""

    version: int
    rewrites: int
    items: Numbers
    sketches: Bits

    @property
    def size(self) -> int:
        return self.items.nbytes + self.sketches.nbytes


_NONE = _Held(-1, -1, np.empty(0, np.int64), np.empty((0, 0), np.uint8))
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
        items = np.concatenate([each.items for each in held]) if held else np.empty(0, np.int64)
        if only is not None:
            allowed = np.isin(items, np.fromiter(only, np.int64, len(only)))
            items = items[allowed]
        else:
            allowed = None
        if not items.size:
            return []
        wanted = max(CANDIDATES, PER_RESULT * limit)
        if items.size > max(EXACT_MAX, wanted):
            sketches = np.concatenate([each.sketches for each in held])
            items = _likely(items, sketches if allowed is None else sketches[allowed], query.sketch, wanted)
        return self._rescored(tx, set(scopes), query, items, limit)

    def _rescored(
        self, tx: Connection, scopes: Collection[str], query: Vector, items: Numbers, limit: int
    ) -> list[tuple[str, float]]:
        numbers, rows = _vectors(tx, query.model, items)
        if not numbers:
            return []
        scores = rows @ np.frombuffer(query.values, "<f4")
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
            self._keep(key, known)
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
        return _Held(now.version, now.rewrites, known.items, known.sketches)
    items = np.fromiter((row.item for row in rows), np.int64, len(rows))
    sketches = np.frombuffer(b"".join(row.sketch for row in rows), np.uint8).reshape(len(rows), -1)
    if known.items.size:
        items, sketches = np.concatenate([known.items, items]), np.concatenate([known.sketches, sketches])
    return _Held(now.version, now.rewrites, items, sketches)


def _likely(items: Numbers, sketches: Bits, query: bytes, count: int) -> Numbers:
    """The items whose signs differ least from the query's."""
    width = sketches.shape[1]
    signs = np.frombuffer(query, np.uint8)
    if width % 8 == 0:  # eight bytes at a time
        differing = np.bitwise_count(sketches.view(np.uint64) ^ signs.view(np.uint64))
    else:
        differing = np.bitwise_count(sketches ^ signs)
    distance = differing.sum(axis=1, dtype=np.uint16)
    return items[np.argpartition(distance, count)[:count]]


def _vectors(tx: Connection, model: str, items: Numbers) -> tuple[list[int], NDArray[np.float32]]:
    numbers: list[int] = []
    values: list[bytes] = []
    wanted = str(np.sort(items).tolist())
    for item, value, checksum in tx.execute(_VECTORS, {"the_model": model, "numbers": wanted}).tuples():
        if crc32(value) != checksum:
            _log.error("a stored vector is damaged and left out", item=item, model=model)
            continue
        numbers.append(item)
        values.append(value)
    return numbers, np.frombuffer(b"".join(values), "<f4").reshape(len(numbers), -1 if numbers else 0)
