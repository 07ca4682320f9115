"""Partial indexes have the same condition on every dialect."""

from typing import Any

from sqlalchemy import create_mock_engine

from kelpie.storage.tables import metadata


def indexes(url: str) -> dict[str, str]:
    made: list[str] = []

    def keep(statement: Any, *_args: Any, **_kwargs: Any) -> None:
        made.append(" ".join(str(statement.compile(dialect=engine.dialect)).split()))

    engine = create_mock_engine(url, keep)
    metadata.create_all(engine, checkfirst=False)
    return {each.split()[2]: each.partition(" WHERE ")[2] for each in made if each.startswith("CREATE INDEX ")}


def test_postgresql_has_the_partial_indexes_of_sqlite() -> None:
    of_sqlite, of_postgresql = indexes("sqlite://"), indexes("postgresql://")
    assert sorted(of_postgresql) == sorted(of_sqlite)
    partial = sorted(name for name, condition in of_sqlite.items() if condition)
    assert "ix_agents_hidden" in partial and len(partial) >= 8
    assert sorted(name for name, condition in of_postgresql.items() if condition) == partial
