"""Lookup of items by their numbers, each once in a search: checks that they exist, are in scope, and may be found.

The scope is a condition in SQL, as are all other conditions, and both are checked for every item that is shown, however
it was found.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, Select, Text, bindparam, func, literal_column, select

from kelpie.core.errors import InvariantBroken
from kelpie.search.tables import search_items
from kelpie.world.statements import Prepared

ITEM_ID: ColumnElement[str] = literal_column("search_items.item_id", Text)  # of the match a condition is about

_CHUNK = 8000
_I = search_items.c


@dataclass(frozen=True, slots=True)
class Only:
    """Conditions on a match besides its words: a condition on the row of ITEM_ID, and its parameters.

    `scopes` gives the scopes to look in, for a search without one. Both are part of prepared statements: build them
    once, at import, and not for every search.
    """

    condition: ColumnElement[bool]
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scopes: Select[Any] | None = None


There = tuple[str, int]  # an item that is there: its id, and the checksum of its words


def inside(scope: ColumnElement[str], scopes: Select[Any] | None) -> ColumnElement[bool]:
    """The condition that a scope is `the_scope`, or one of those that a statement gives."""
    return scope == bindparam("the_scope") if scopes is None else scope.in_(scopes)


def listed(name: str) -> Select[Any]:
    """Numbers as one JSON list: hundreds of parameters cost more than the rows they fetch."""
    return select(func.json_each(bindparam(name)).table_valued("value").c.value)


class Lookup:
    """The items of one search. `scopes` and `bound` are for statements that read the searchable items."""

    def __init__(self, tx: Connection, kind: str, scope: str | None, only: Only | None) -> None:
        """Raises InvariantBroken without a scope, unless `only` limits the owners, and names the scopes."""
        if scope is None and (only is None or only.scopes is None):
            raise InvariantBroken("A search needs the owner of the items and their scopes.")
        self.tx = tx
        self.kind = kind
        self.scopes = only.scopes if scope is None and only is not None else None
        of_scope = {} if scope is None else {"the_scope": scope}
        self.bound: dict[str, Any] = {"the_kind": kind, **of_scope, **(only.parameters if only else {})}
        self._found = _found(self.scopes, only.condition if only else None)
        self._known: dict[int, There | None] = {}
        self._also: list[int] = []

    def expect(self, numbers: Iterable[int]) -> None:
        """Numbers that will be requested: they are looked up with the next request."""
        self._also.extend(numbers)

    def of(self, numbers: Sequence[int]) -> dict[int, There]:
        """Those of the items that exist, are in scope, and meet the condition."""
        known = self._known
        wanted = [number for number in dict.fromkeys((*numbers, *self._also)) if number not in known]
        self._also = []
        if wanted:
            known |= dict.fromkeys(wanted)
            self._look_up(wanted)
        return {number: there for number in numbers if (there := known[number]) is not None}

    def _look_up(self, numbers: Sequence[int]) -> None:
        for start in range(0, len(numbers), _CHUNK):
            asked = {**self.bound, "numbers": str(numbers[start : start + _CHUNK])}
            found, *columns = map(orjson.loads, self._found(self.tx, asked))
            self._known |= zip(found, zip(*columns, strict=True), strict=True)


@lru_cache(maxsize=256)
def _found(scopes: Select[Any] | None, condition: ColumnElement[bool] | None) -> Callable[..., Sequence[str]]:
    # The result is one row: for each further row, concurrent turns would wait for the interpreter once more.
    # Rows are looked up by their numbers: no index of all items of a scope may tempt the planner.
    of_kind, of_scope = _I.kind.concat("") == bindparam("the_kind"), inside(_I.scope.concat(""), scopes)
    found = select(*(func.json_group_array(each) for each in (_I.id, _I.item_id, _I.checksum))).where(
        _I.id.in_(listed("numbers")), of_kind, of_scope
    )
    if condition is None and scopes is None:
        return Prepared(found).first
    whole = found if condition is None else found.where(condition)  # it may have lists of parameters
    return lambda tx, asked: tx.execute(whole, asked).one()
