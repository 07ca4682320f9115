"""Insert statements of rows that are written often: compiled once for each dialect, with the conversion of each column.

SQLAlchemy's own way costs several times as much as SQLite needs for the row. Columns that a row lacks stay empty.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Table, bindparam, insert

from kelpie.world.database import Tx, run_sql

_Convert = Callable[[Any], Any]


class Insert:
    """Inserts rows into one table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._compiled: dict[tuple[str, ...], tuple[str, bool, list[tuple[str, _Convert | None]]]] = {}

    def run(self, tx: Tx, rows: Sequence[Mapping[str, Any]]) -> None:
        """Inserts the rows, which all have the same columns; at least one."""
        key = (tx.dialect.name, *rows[0])  # a table has few combinations
        if (found := self._compiled.get(key)) is None:
            found = self._compiled[key] = self._compile(tx, tuple(rows[0]))
        sql, positional, columns = found
        values: list[Any] = []
        for row in rows:
            converted = [row[name] if convert is None else convert(row[name]) for name, convert in columns]
            names = (name for name, _ in columns)
            values.append(tuple(converted) if positional else dict(zip(names, converted, strict=True)))
        run_sql(tx, sql, values if len(values) > 1 else values[0])

    def _compile(self, tx: Tx, names: tuple[str, ...]) -> tuple[str, bool, list[tuple[str, _Convert | None]]]:
        statement = insert(self._table).values({name: bindparam(name) for name in names})
        compiled = statement.compile(dialect=tx.dialect)
        order: Sequence[str] = compiled.positiontup or names
        types = {name: self._table.c[name].type.dialect_impl(tx.dialect) for name in names}
        converts: list[tuple[str, _Convert | None]] = [(name, types[name].bind_processor(tx.dialect)) for name in order]
        return str(compiled), bool(compiled.positional), converts
