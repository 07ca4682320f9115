"""The vectors of searchable items as rows: written and removed inside the caller's transaction, with the item itself.

Each vector belongs to a model, and models are never mixed: an item may have one of each while its scope changes from
one to the other. `vector_search` finds the nearest; it is imported only when a search runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from kelpie.search import embedding_coverage
from kelpie.search.tables import search_items, search_scopes, search_sketches, search_vectors
from kelpie.search.text.fulltext import Kind

_CHUNK = 500  # ids per IN list


@dataclass(frozen=True, slots=True)
class Vector:
    """A text's vector of one model: little-endian 32-bit floats, of length one, and their signs."""

    model: str
    values: bytes
    sketch: bytes


_I, _S, _V, _N = search_items.c, search_sketches.c, search_vectors.c, search_scopes.c
_FOUND = select(_I.item_id, _I.id, _I.scope, _I.model).where(
    _I.kind == bindparam("the_kind"), _I.item_id.in_(bindparam("ids", expanding=True))
)
_EMBEDDED = update(search_items).where(_I.id == bindparam("the_number")).values(model=bindparam("new_model"))
_PUT_VECTOR = insert(search_vectors)
_PUT_SKETCH = insert(search_sketches)


def put_many(tx: Connection, kind: Kind, vectors: Mapping[str, Sequence[Vector]]) -> None:
    """Stores the vectors of items, which are in the text index already. An existing vector of a model stays."""
    known = {row.item_id: row for row in _rows(tx, kind, list(vectors))}
    there = _there(tx, [row.id for row in known.values() if row.model is not None])
    new = [
        (known[item_id], vector)
        for item_id, some in vectors.items()
        if item_id in known
        for vector in some
        if (known[item_id].id, vector.model) not in there
    ]
    latest = {known[item_id].id: some[-1].model for item_id, some in vectors.items() if item_id in known and some}
    if latest:
        tx.execute(_EMBEDDED, [{"the_number": number, "new_model": model} for number, model in latest.items()])
    if not new:
        return
    first: dict[tuple[str, str], int] = {}
    for row, vector in new:
        first[row.scope, vector.model] = min(row.id, first.get((row.scope, vector.model), row.id))
    amid = {scope for (scope, model), number in first.items() if number < _newest(tx, kind, scope, model)}
    tx.execute(
        _PUT_VECTOR,
        [{"item": row.id, "model": v.model, "vector": v.values, "checksum": crc32(v.values)} for row, v in new],
    )
    tx.execute(
        _PUT_SKETCH,
        [{"kind": kind, "scope": row.scope, "model": v.model, "item": row.id, "sketch": v.sketch} for row, v in new],
    )
    models: dict[str, list[str]] = {}
    for row, vector in new:
        models.setdefault(row.scope, []).append(vector.model)
    for scope, used in models.items():
        _changed(tx, kind, scope, rewrites=int(scope in amid), models=tuple(dict.fromkeys(used)))


_THERE = select(_V.item, _V.model).where(_V.item.in_(bindparam("numbers", expanding=True)))


def _there(tx: Connection, numbers: Sequence[int]) -> set[tuple[int, str]]:
    """The models of which these items have vectors."""
    found: set[tuple[int, str]] = set()
    for start in range(0, len(numbers), _CHUNK):
        rows = tx.execute(_THERE, {"numbers": list(numbers[start : start + _CHUNK])})
        found |= {(row.item, row.model) for row in rows}
    return found


_NEWEST = select(func.max(_S.item)).where(
    _S.kind == bindparam("the_kind"), _S.scope == bindparam("the_scope"), _S.model == bindparam("the_model")
)


def _newest(tx: Connection, kind: Kind, scope: str, model: str) -> int:
    found = tx.execute(_NEWEST, {"the_kind": kind, "the_scope": scope, "the_model": model}).scalar()
    return -1 if found is None else int(found)


_OF_ITEM = _V.item == bindparam("the_number")
_DROP_VECTORS = delete(search_vectors).where(_OF_ITEM)
_DROP_SKETCHES = delete(search_sketches).where(_S.item == bindparam("the_number"))


def remove_many(tx: Connection, kind: Kind, item_ids: Sequence[str]) -> None:
    """Deletes the vectors of items; the items must still be in the text index."""
    gone = [row for row in _rows(tx, kind, item_ids) if row.model is not None]
    if gone:
        numbers = [{"the_number": row.id} for row in gone]
        tx.execute(_DROP_VECTORS, numbers)
        tx.execute(_DROP_SKETCHES, numbers)
    for scope in dict.fromkeys(row.scope for row in gone):
        _changed(tx, kind, scope, rewrites=1)


_IN_SCOPE = (_S.kind == bindparam("the_kind")) & (_S.scope == bindparam("the_scope"))
_DROP_VECTORS_OF_SCOPE = delete(search_vectors).where(_V.item.in_(select(_S.item).where(_IN_SCOPE)))
_DROP_SKETCHES_OF_SCOPE = delete(search_sketches).where(_IN_SCOPE)
_HAS_VECTORS = select(_S.item).where(_IN_SCOPE).limit(1)


def remove_scope(tx: Connection, kind: Kind, scope: str) -> None:
    """Deletes the vectors of a whole scope."""
    wanted = {"the_kind": kind, "the_scope": scope}
    if tx.execute(_HAS_VECTORS, wanted).scalar() is None:
        return
    tx.execute(_DROP_VECTORS_OF_SCOPE, wanted)
    tx.execute(_DROP_SKETCHES_OF_SCOPE, wanted)
    _changed(tx, kind, scope, rewrites=1)


def remove_numbers(tx: Connection, numbers: Sequence[int]) -> None:
    """Deletes the vectors of the items with these numbers, whose scope no search uses any more."""
    wanted = [{"the_number": number} for number in numbers]
    tx.execute(_DROP_VECTORS, wanted)
    tx.execute(_DROP_SKETCHES, wanted)


def forget_scope(tx: Connection, kind: Kind, scope: str) -> None:
    """Deletes the records of a scope whose owner is gone."""
    tx.execute(_FORGET, {"the_kind": kind, "the_scope": scope})


_OF_OTHERS = _IN_SCOPE & (_S.model != bindparam("the_model"))
_SOME_OF_OTHERS = select(_S.item).where(_OF_OTHERS).limit(bindparam("most"))
_DROP_OF_OTHERS = (
    delete(search_vectors).where(_OF_ITEM, _V.model != bindparam("the_model")),
    delete(search_sketches).where(_OF_OTHERS, _S.item == bindparam("the_number")),
)


def remove_others(tx: Connection, kind: Kind, scope: str, model: str, most: int) -> bool:
    """Deletes some of a scope's vectors that are not of this model; True when there were no more than that.

    With the last of them the scope has a single model, unless it is searched by another one meanwhile.
    """
    wanted = {"the_kind": kind, "the_scope": scope, "the_model": model}
    if models_of(tx, kind, (scope,)).get(scope) != model or embedding_coverage.without(tx, kind, scope, model, 0, 1):
        return True  # it is changing again
    numbers = [row.item for row in tx.execute(_SOME_OF_OTHERS, {**wanted, "most": most})]
    if numbers:
        for statement in _DROP_OF_OTHERS:
            tx.execute(statement, [{**wanted, "the_number": number} for number in numbers])
        _changed(tx, kind, scope, rewrites=1)
    if len(numbers) == most:
        return False
    tx.execute(_UNMIXED, {"the_kind": kind, "the_scope": scope})
    return True


_MODELS = select(_N.scope, _N.model).where(
    _N.kind == bindparam("the_kind"), _N.scope.in_(bindparam("scopes", expanding=True))
)
_USE = (
    update(search_scopes)
    .where(_N.kind == bindparam("the_kind"), _N.scope == bindparam("the_scope"))
    .values(model=bindparam("new_model"))
)


def models_of(tx: Connection, kind: Kind, scopes: Sequence[str]) -> dict[str, str]:
    """The scopes that can be searched by meaning, with the model that they are searched by."""
    found: dict[str, str] = {}
    for start in range(0, len(scopes), _CHUNK):
        rows = tx.execute(_MODELS, {"the_kind": kind, "scopes": list(scopes[start : start + _CHUNK])})
        found |= {row.scope: row.model for row in rows}
    return found


def search_by(tx: Connection, kind: Kind, scope: str, model: str) -> None:
    """Sets the model by which the scope is searched; every item has a vector of it."""
    tx.execute(_USE, {"the_kind": kind, "the_scope": scope, "new_model": model})


_OF_SCOPE = (_N.kind == bindparam("the_kind")) & (_N.scope == bindparam("the_scope"))
_MOVE = (
    update(search_scopes)
    .where(_OF_SCOPE)
    .values(version=_N.version + 1, rewrites=_N.rewrites + bindparam("more_rewrites"))
)
_MIX = update(search_scopes).where(_OF_SCOPE, _N.model != bindparam("other_model")).values(mixed=True)
_UNMIXED = update(search_scopes).where(_OF_SCOPE).values(mixed=False)
_BEGIN = insert(search_scopes)
_FORGET = delete(search_scopes).where(_OF_SCOPE)


def _changed(tx: Connection, kind: Kind, scope: str, *, rewrites: int, models: Sequence[str] = ()) -> None:
    """Moves the version of a scope, which starts with its first vector; `models` are those of the new vectors."""
    wanted = {"the_kind": kind, "the_scope": scope}
    moved = tx.execute(_MOVE, {**wanted, "more_rewrites": rewrites}).rowcount
    if not moved and models:
        begun = {"kind": kind, "scope": scope, "model": models[0], "version": 1, "rewrites": rewrites}
        tx.execute(_BEGIN, {**begun, "mixed": len(models) > 1})
    for model in models if moved else ():
        tx.execute(_MIX, {**wanted, "other_model": model})


_VALUES = (
    select(_I.item_id, _V.vector, _V.checksum)
    .join_from(search_items, search_vectors, (_V.item == _I.id) & (_V.model == _I.model))
    .where(_I.kind == bindparam("the_kind"), _I.item_id.in_(bindparam("ids", expanding=True)))
)


def values_of(tx: Connection, kind: Kind, item_ids: Sequence[str]) -> dict[str, bytes]:
    """The vectors of items as 32-bit floats, each of the model it was last embedded by; damaged ones are left out."""
    found: dict[str, bytes] = {}
    for start in range(0, len(item_ids), _CHUNK):
        rows = tx.execute(_VALUES, {"the_kind": kind, "ids": list(item_ids[start : start + _CHUNK])})
        found |= {row.item_id: row.vector for row in rows if crc32(row.vector) == row.checksum}
    return found


def _rows(tx: Connection, kind: Kind, item_ids: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for start in range(0, len(item_ids), _CHUNK):
        found.extend(tx.execute(_FOUND, {"the_kind": kind, "ids": list(item_ids[start : start + _CHUNK])}))
    return found
