"""Statements that are run often: compiled once for each dialect and then given to the driver as text and values.

SQLAlchemy's own way costs several times as much as SQLite needs for the statement. A prepared statement has named
parameters and constants, and no list of parameters whose length changes from one use to the next.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Delete, Dialect, Insert, Select, Update

from kelpie.core.errors import InvariantBroken
from kelpie.world.database import Tx, run_sql

Convert = Callable[[Any], Any]
Statement: TypeAlias = "Select[*tuple[Any, ...]] | Insert | Update | Delete"
_row_type: Callable[[str, list[str]], Any] = namedtuple


@dataclass(frozen=True, slots=True)
class _Compiled:
    sql: str
    names: tuple[str, ...]  # of the values, in their order where the driver wants them by position
    positional: bool
    constants: Mapping[str, Any]  # as the driver gets them
    converts: tuple[tuple[str, Convert], ...]  # of parameters that the driver gets in another form
    row: Callable[[Sequence[Any]], Any]  # a row as the caller gets it

    def values(self, given: Mapping[str, Any]) -> Any:
        if self.converts or self.constants:
            changed = {**self.constants, **given}
            for name, convert in self.converts:
                changed[name] = convert(changed[name])
            given = changed
        return tuple([given[name] for name in self.names]) if self.positional else dict(given)


class Prepared:
    """One statement. Columns of a selection are attributes of its rows, by their names."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}  # by the name of the dialect

    def run(self, tx: Tx, given: Mapping[str, Any]) -> int:
        """Runs it and returns the number of rows that it changed."""
        compiled = self._for(tx)
        return run_sql(tx, compiled.sql, compiled.values(given)).rowcount

    def run_many(self, tx: Tx, given: Sequence[Mapping[str, Any]]) -> None:
        """Runs it once for each of the given, at least one."""
        compiled = self._for(tx)
        run_sql(tx, compiled.sql, [compiled.values(each) for each in given])

    def rows(self, tx: Tx, given: Mapping[str, Any]) -> list[Any]:
        """All rows of a selection."""
        compiled = self._for(tx)
        return [compiled.row(row) for row in run_sql(tx, compiled.sql, compiled.values(given)).fetchall()]

    def first(self, tx: Tx, given: Mapping[str, Any]) -> Any:
        """The only row of a selection, or None."""
        found = self.rows(tx, given)
        return found[0] if found else None

    def scalar(self, tx: Tx, given: Mapping[str, Any]) -> Any:
        """The first column of the only row of a selection, or None."""
        found = self.first(tx, given)
        return None if found is None else found[0]

    def _for(self, tx: Tx) -> _Compiled:
        if (found := self._compiled.get(tx.dialect.name)) is None:
            found = self._compiled[tx.dialect.name] = _compile(self._statement, tx.dialect)
        return found


def _compile(statement: Statement, dialect: Dialect) -> _Compiled:
    compiled = statement.compile(dialect=dialect)
    if compiled.post_compile_params:
        raise InvariantBroken(f"A prepared statement has no lists of parameters: {compiled}")
    names = tuple(compiled.positiontup or compiled.params)
    constants, converts = dict[str, Any](), list[tuple[str, Convert]]()
    for name in names:
        bind = compiled.binds[name]
        convert = bind.type.dialect_impl(dialect).bind_processor(dialect)
        if not bind.required:  # a value of the statement itself
            constants[name] = bind.effective_value if convert is None else convert(bind.effective_value)
        elif convert is not None:
            converts.append((name, convert))
    positional = bool(compiled.positional)
    return _Compiled(
        str(compiled), names, positional, constants, tuple(dict(converts).items()), _row_of(statement, dialect)
    )


def _row_of(statement: Statement, dialect: Dialect) -> Callable[[Sequence[Any]], Any]:
    if not isinstance(statement, Select):
        return tuple
    columns = list(statement.selected_columns)
    names = [column.key or f"column_{at}" for at, column in enumerate(columns)]
    keys = [name if name.isidentifier() else f"column_{at}" for at, name in enumerate(names)]
    made: Callable[[Sequence[Any]], Any] = _row_type("Row", keys)._make
    processors = [column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns]
    converts = [(at, convert) for at, convert in enumerate(processors) if convert is not None]
    if not converts:
        return made

    def row(found: Sequence[Any]) -> Any:
        values = list(found)
        for at, convert in converts:
            values[at] = convert(values[at])
        return made(values)

    return row
