"""Progress of embedding: items that lack a vector, of a model or at all, and counts.

It reads the item's row, which has the model of its last vector; the vectors themselves are not read.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, func, select, update

from kelpie.search.tables import search_items
from kelpie.search.text.fulltext import Kind
from kelpie.world.statements import Prepared

_I = search_items.c
_WITHOUT = (
    select(_I.id, _I.item_id)
    .where(_I.kind == bindparam("the_kind"), _I.scope == bindparam("the_scope"), _I.id > bindparam("after"))
    .where(_I.model.is_distinct_from(bindparam("the_model")))
    .order_by(_I.id)
    .limit(bindparam("most"))
)


def without(tx: Connection, kind: Kind, scope: str, model: str, after: int, most: int) -> list[tuple[int, str]]:
    """Items of a scope without a vector of this model, with their numbers, those after a number."""
    wanted = {"the_kind": kind, "the_scope": scope, "the_model": model, "after": after, "most": most}
    return [(row.id, row.item_id) for row in tx.execute(_WITHOUT, wanted)]


_BARE = Prepared(
    select(_I.id, _I.scope, _I.item_id)
    .where(_I.kind == bindparam("the_kind"), _I.model.is_(None), _I.id < bindparam("before"))
    .order_by(_I.id.desc())
    .limit(bindparam("most"))
)


def unembedded(tx: Connection, kind: Kind, before: int, most: int) -> list[tuple[int, str, str]]:
    """Items without any vector, the newest first, before a number: number, scope and id of each."""
    return [tuple(row) for row in _BARE.rows(tx, {"the_kind": kind, "before": before, "most": most})]


_MARK = update(search_items).where(_I.kind == bindparam("the_kind"), _I.item_id.in_(bindparam("ids", expanding=True)))
_MARK = _MARK.values(model=bindparam("new_model"))


def mark(tx: Connection, kind: Kind, item_ids: Sequence[str], model: str) -> None:
    """Marks items without any text to embed as embedded."""
    if item_ids:
        tx.execute(_MARK, {"the_kind": kind, "ids": list(item_ids), "new_model": model})


_ALL_OF_SCOPE = (_I.kind == bindparam("the_kind")) & (_I.scope == bindparam("the_scope"))
_PROGRESS = select(func.count(), func.count().filter(_I.model == bindparam("the_model"))).where(_ALL_OF_SCOPE)


def progress(tx: Connection, kind: Kind, scope: str, model: str | None) -> tuple[int, int]:
    """Number of items of a scope with a vector of this model, and of all its items."""
    total, done = tx.execute(_PROGRESS, {"the_kind": kind, "the_scope": scope, "the_model": model}).one()
    return done, total
