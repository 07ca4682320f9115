"""Queue of scopes with enough unsealed items for a segment, or with segments to merge: noted when they grow or shrink.

Noting costs next to nothing: on average every 32nd item that is written checks how many unsealed ones there are.
`segment_merge` does the work in the background; only a writer of very many items at once also seals them.
"""

import importlib
from collections.abc import Collection, Sequence
from zlib import crc32

from sqlalchemy import Connection, Integer, bindparam, delete, func, insert, select, true, update

from kelpie.search.tables import search_items, search_postings, search_segments, search_unordered

LOOSE_MAX = 256  # items that may stay loose
LOOKS = 32
BITS_MAX = 12  # rows of postings in a segment, as a power of two
GONE_MAX = 0.5  # of a segment's items

_I, _S, _U, _P = search_items.c, search_segments.c, search_unordered.c, search_postings.c
_LOOSE = _I.kind == bindparam("the_kind"), _I.scope == bindparam("the_scope"), _I.loose == true()
_IS_LOOSE = select(_I.id).where(*_LOOSE).limit(1).offset(bindparam("others"))
_OF_SCOPE = _S.kind == bindparam("the_kind"), _S.scope == bindparam("the_scope")
_NOTED = select(_U.kind).where(_U.kind == bindparam("the_kind"), _U.scope == bindparam("the_scope"))
_NOTE = insert(search_unordered)
_DONE = delete(search_unordered).where(_U.kind == bindparam("the_kind"), _U.scope == bindparam("the_scope"))
_NEXT = select(_U.kind, _U.scope).order_by(_U.kind, _U.scope).limit(1)
_LOSE = (
    update(search_segments)
    .where(*_OF_SCOPE, _S.first <= bindparam("of_item"), _S.last >= bindparam("of_item"))
    .values(gone=_S.gone + 1)
)
_WASTED = select(_S.id).where(*_OF_SCOPE, _S.gone > GONE_MAX * _S.size).limit(1)
_SEGMENTS = select(_S.id).where(*_OF_SCOPE).order_by(_S.id)
_DROP_SEGMENT = delete(search_segments).where(_S.id == bindparam("of_segment"))
_OF_SEGMENT = _P.place >= bindparam("low"), _P.place < bindparam("high")
_COUNT_POSTINGS = select(func.count()).select_from(search_postings).where(*_OF_SEGMENT)
_DROP_POSTINGS = delete(search_postings).where(*_OF_SEGMENT)
_DROP_SOME_POSTINGS = delete(search_postings).where(
    _P.place.in_(select(_P.place).where(*_OF_SEGMENT).order_by(_P.place).limit(bindparam("most", type_=Integer)))
)


def grown(tx: Connection, kind: str, scope: str, item_ids: Collection[str]) -> None:
    """Notes that items were written into a scope."""
    if len(item_ids) < LOOSE_MAX and all(crc32(each.encode()) % LOOKS for each in item_ids):
        return
    if has_many_unsealed(tx, kind, scope):
        note(tx, kind, scope)
        if len(item_ids) >= LOOSE_MAX:
            importlib.import_module("kelpie.search.text.segment_merge").seal(tx, kind, scope)  # it needs numpy


def shrunk(tx: Connection, kind: str, gone: Sequence[tuple[str, int]]) -> None:
    """Notes that items of a segment were removed: the scope and the number of each."""
    if not gone:
        return
    tx.execute(_LOSE, [{"the_kind": kind, "the_scope": scope, "of_item": number} for scope, number in gone])
    for scope in dict.fromkeys(scope for scope, _ in gone):
        if tx.execute(_WASTED, {"the_kind": kind, "the_scope": scope}).first() is not None:
            note(tx, kind, scope)


def has_many_unsealed(tx: Connection, kind: str, scope: str) -> bool:
    """Checks whether a scope has more unsealed items than it should."""
    bound = {"the_kind": kind, "the_scope": scope, "others": LOOSE_MAX}
    return tx.execute(_IS_LOOSE, bound).first() is not None


def note(tx: Connection, kind: str, scope: str) -> None:
    """Adds a scope to the queue."""
    if tx.execute(_NOTED, {"the_kind": kind, "the_scope": scope}).first() is None:
        tx.execute(_NOTE, {"kind": kind, "scope": scope})


def done(tx: Connection, kind: str, scope: str) -> None:
    """Removes a scope from the queue."""
    tx.execute(_DONE, {"the_kind": kind, "the_scope": scope})


def next_scope(tx: Connection) -> tuple[str, str] | None:
    """A scope from the queue, with its kind."""
    found = tx.execute(_NEXT).first()
    return None if found is None else (found.kind, found.scope)


def forget(tx: Connection, kind: str, scope: str) -> None:
    """Deletes the segments of a scope that has no items any more."""
    drop(tx, [row.id for row in tx.execute(_SEGMENTS, {"the_kind": kind, "the_scope": scope})])
    done(tx, kind, scope)


def count_rows(tx: Connection, kind: str, scope: str) -> int:
    """Number of rows of the segments of a scope."""
    found = 0
    for segment in [row.id for row in tx.execute(_SEGMENTS, {"the_kind": kind, "the_scope": scope})]:
        found += 1 + tx.execute(_COUNT_POSTINGS, _bounds(segment)).scalar_one()
    return found


def forget_some(tx: Connection, kind: str, scope: str, rows: int) -> bool:
    """Deletes at most so many rows of the segments of a scope that has no items any more; True when none is left."""
    left = rows
    for segment in [row.id for row in tx.execute(_SEGMENTS, {"the_kind": kind, "the_scope": scope})]:
        left -= tx.execute(_DROP_SOME_POSTINGS, {**_bounds(segment), "most": left}).rowcount
        if left <= 0:
            return False
        tx.execute(_DROP_SEGMENT, {"of_segment": segment})
        left -= 1
    done(tx, kind, scope)
    return True


def drop(tx: Connection, segments: Sequence[int]) -> None:
    """Deletes segments with their postings."""
    for segment in segments:
        tx.execute(_DROP_POSTINGS, _bounds(segment))
        tx.execute(_DROP_SEGMENT, {"of_segment": segment})


def _bounds(segment: int) -> dict[str, int]:
    return {"low": segment << BITS_MAX, "high": (segment + 1) << BITS_MAX}
