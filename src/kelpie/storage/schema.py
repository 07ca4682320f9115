"""Migration of a database to the schema of this Kelpie: creates a new one, migrates an older one, refuses a newer one.

A new database is made directly from `tables`, and one that is up to date costs one small read; Alembic is imported only
to migrate. A test proves that both ways give the same schema. It must never migrate before a copy was made.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    create_mock_engine,
    insert,
    inspect,
    select,
)
from sqlalchemy.schema import ExecutableDDLElement

from kelpie.core.errors import ConfigurationError
from kelpie.storage import name_index, usage_triggers
from kelpie.storage.tables import metadata
from kelpie.world.database import Database

# Alembic's own table, in Alembic's own shape.
version_row = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)

_FIND_VERSION = select(version_row.c.version_num)
_SET_VERSION = insert(version_row)


@dataclass(frozen=True, slots=True)
class Revisions:
    """The known revisions of a database, oldest first, and the folders of their scripts."""

    known: tuple[str, ...]
    locations: tuple[str, ...]

    @property
    def newest(self) -> str:
        return self.known[-1]


REVISIONS = Revisions(
    known=(
        "0001",
        "0002",
        "0003",
        "0006",
        "0009",
        "0012",
        "0013",
        "0014",
        "0015",
        "0016",
        "0017",
        "0018",
        "0019",
        "0020",
        "0021",
        "0022",
        "0023",
        "0024",
    ),
    locations=(str(Path(__file__).parent / "migrations" / "versions"),),
)


async def ensure_schema(
    database: Database,
    *,
    back_up: Callable[[str], Awaitable[object]] | None = None,
    revisions: Revisions = REVISIONS,
) -> str:
    """Brings the database to the newest revision and returns the revision it was at before ("" if it was empty).

    `back_up` is called with a label before a migration. Raises ConfigurationError when the database is newer than this
    Kelpie or is not Kelpie's, and a StorageError when it fails; the database is then as it was.
    """
    found = await database.read(find_revision)
    if found == revisions.newest:
        return found
    if not found:
        await database.transact(create)
        return found
    if found not in revisions.known:
        raise ConfigurationError(
            "KELPIE_DATA_DIR",
            f"the database there has schema {found}, which is newer than this Kelpie supports ({revisions.newest}); "
            "start a newer Kelpie, or restore the backup that was made before the upgrade",
        )
    if back_up:
        await back_up(f"schema-{found}")
    await database.transact(lambda tx: migrate(tx, revisions))
    return found


def find_revision(tx: Connection) -> str:
    """The revision a database is at, or "" when it is empty. Raises ConfigurationError when it holds something else."""
    tables = inspect(tx).get_table_names()
    if version_row.name in tables and (found := tx.scalar(_FIND_VERSION)):
        return found
    others = sorted(name for name in tables if name != version_row.name and not name.startswith("sqlite_"))
    if others:
        raise ConfigurationError(
            "KELPIE_DATA_DIR",
            f"the database there holds tables that Kelpie did not make ({', '.join(others[:3])}); "
            "choose another directory or move that file away",
        )
    return ""


def create(tx: Connection) -> None:
    """Makes the newest schema in an empty database."""
    for statement in _definitions(tx.dialect.name):
        tx.exec_driver_sql(statement)
    version_row.create(tx, checkfirst=True)
    tx.execute(_SET_VERSION, {"version_num": REVISIONS.newest})


@cache
def _definitions(dialect: str) -> tuple[str, ...]:
    """The statements that make all tables, indexes and triggers, compiled once: compiling takes most of the time."""
    statements: list[str] = []

    def keep(statement: ExecutableDDLElement, *_: object, **__: object) -> None:
        statements.append(str(statement.compile(dialect=engine.dialect)))

    engine = create_mock_engine(f"{dialect}://", keep)
    metadata.create_all(engine, checkfirst=False)
    return (*statements, *usage_triggers.definitions(dialect), *name_index.definitions(dialect))


def migrate(tx: Connection, revisions: Revisions = REVISIONS) -> None:
    """Runs the revisions that the database lacks."""
    from kelpie.storage import migrations  # Alembic costs a third of the start-up time and is rarely needed

    migrations.upgrade(tx, revisions.locations, revisions.newest)
