"""The one MetaData of all tables, and the naming of constraints: the same on every dialect."""

from typing import Any

from sqlalchemy import Connection, MetaData, event

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


@event.listens_for(metadata, "before_create")
def _partial_on_postgresql(_target: MetaData, tx: Connection, **_of_creation: Any) -> None:
    """Makes the partial indexes partial on PostgreSQL too.

    An index that named the option itself would import the whole dialect into every server.
    """
    if tx.dialect.name == "postgresql":
        for table in metadata.tables.values():
            for index in table.indexes:
                index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
