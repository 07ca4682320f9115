"""Removal of scopes whose owner is gone from every index: at once when they are small, else piece by piece later.

Their items cannot be found meanwhile, because no search asks for such a scope any more.
"""

from sqlalchemy import Connection, Integer, bindparam, delete, func, insert, select

from kelpie.search import items, vector_rows
from kelpie.search.tables import search_items, search_removed
from kelpie.search.text import fulltext, segment_queue
from kelpie.search.text.fulltext import Kind

ROWS_MAX = 100  # rows that are deleted in one transaction, unless the caller says otherwise

_I, _R = search_items.c, search_removed.c
_SOME_NUMBERS = (
    select(_I.id)
    .where(_I.kind == bindparam("the_kind"), _I.scope == bindparam("the_scope"))
    .limit(bindparam("most", type_=Integer))
)
_COUNT = (
    select(func.count())
    .select_from(search_items)
    .where(_I.kind == bindparam("the_kind"), _I.scope == bindparam("the_scope"))
)
_GIVE_UP = insert(search_removed)
_GIVEN_UP = select(search_removed).order_by(_R.kind, _R.scope).limit(1)
_IS_GIVEN_UP = select(_R.scope).where(_R.kind == bindparam("the_kind"), _R.scope == bindparam("the_scope"))
_FORGET = delete(search_removed).where(_R.kind == bindparam("the_kind"), _R.scope == bindparam("the_scope"))


def discard_scope(tx: Connection, kind: Kind, scope: str, rows: int = ROWS_MAX) -> None:
    """Removes the items of a scope whose owner is gone: now or, when they are many, piece by piece later."""
    if len(_some_of(tx, kind, scope, rows)) < rows:
        items.remove_scope(tx, kind, scope)
        items.forget_scope(tx, kind, scope)
    elif tx.execute(_IS_GIVEN_UP, {"the_kind": kind, "the_scope": scope}).scalar() is None:
        tx.execute(_GIVE_UP, {"kind": kind, "scope": scope})


def count(tx: Connection, kind: Kind, scope: str) -> int:
    """Number of items of a scope."""
    return int(tx.execute(_COUNT, {"the_kind": kind, "the_scope": scope}).scalar_one())


def remove_some(tx: Connection, kind: Kind, scope: str, rows: int = ROWS_MAX) -> int:
    """Removes at most so many items of a scope that no search asks for, and returns their number."""
    if numbers := _some_of(tx, kind, scope, rows):
        vector_rows.remove_numbers(tx, numbers)
        fulltext.remove_numbers(tx, numbers)
    return len(numbers)


def remove_piece(tx: Connection, kind: Kind, scope: str, rows: int = ROWS_MAX) -> bool:
    """Removes at most so many rows of what remains of a scope whose owner is gone, its records with the last of them;
    True when nothing is left."""
    left = rows - remove_some(tx, kind, scope, rows)
    if left <= 0 or not segment_queue.forget_some(tx, kind, scope, left):
        return False
    vector_rows.forget_scope(tx, kind, scope)
    return True


def needs_cleanup(tx: Connection) -> bool:
    """Checks whether items of a discarded scope remain."""
    return tx.execute(_GIVEN_UP).first() is not None


def clean_up(tx: Connection, rows: int = ROWS_MAX) -> None:
    """Removes a piece of what remains of a discarded scope."""
    found = tx.execute(_GIVEN_UP).first()
    if found is not None and remove_piece(tx, found.kind, found.scope, rows):
        tx.execute(_FORGET, {"the_kind": found.kind, "the_scope": found.scope})


def _some_of(tx: Connection, kind: str, scope: str, rows: int) -> list[int]:
    wanted = {"the_kind": kind, "the_scope": scope, "most": rows}
    return [row.id for row in tx.execute(_SOME_NUMBERS, wanted)]
