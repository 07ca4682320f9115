"""A database is created, migrated, taken back or refused; and both ways of making the schema make the same one."""

import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, text

from kelpie.core.errors import ConfigurationError, StorageError
from kelpie.core.ids import OrganizationId
from kelpie.core.permissions.organization_limits import OrganizationUsage
from kelpie.storage import migrations, schema
from kelpie.storage.accounts import usage
from kelpie.storage.tables import archives, metadata
from kelpie.world.sqlite.connections import memory_connection
from kelpie.world.sqlite.database import SqliteDatabase

LATER = """
import sqlalchemy as sa
from alembic import op

revision = "0002test"
down_revision = "{previous}"


def upgrade():
    op.add_column("archives", sa.Column("colour", sa.Text(), nullable=True))
    op.create_table("later", sa.Column("id", sa.Text(), primary_key=True))
    {last}


def downgrade():
    op.drop_table("later")
    op.drop_column("archives", "colour")
"""
ARCHIVE = {
    "id": "archive-1",
    "organization_id": "org",
    "name": "kept",
    "embedding_chunk_size": 300,
    "removed": False,
    "created_at": 1,
    "updated_at": 1,
}


@pytest.fixture
def connection() -> Iterator[Connection]:
    opened = memory_connection()
    yield opened
    opened.close()


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    opened = SqliteDatabase.open(tmp_path / "test.db")
    yield opened
    await opened.close()


def later(folder: Path, last: str = "pass") -> schema.Revisions:
    """The revisions of a Kelpie one step newer than this one."""
    known = schema.REVISIONS
    (folder / "0002.py").write_text(LATER.format(previous=known.newest, last=last))
    return schema.Revisions((*known.known, "0002test"), (*known.locations, str(folder)))


def described(connection: Connection) -> dict[str, str]:
    """Every table and index with its definition; order of lines and blanks mean nothing."""
    found = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    return {row.name: " ".join(sorted(re.split(r"[\s,]+", row.sql))) for row in found}


def version(connection: Connection) -> object:
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()


def test_the_migration_gives_the_schema_that_is_created_directly(connection: Connection) -> None:
    schema.create(connection)
    migrated = memory_connection()
    schema.migrate(migrated)
    assert described(migrated) == described(connection), (
        "tables.py and the revisions differ. Until the first release: python tests/storage/render_revision.py"
    )
    assert version(migrated) == version(connection) == [schema.REVISIONS.newest]
    assert set(metadata.tables) | {"alembic_version"} <= set(described(migrated))


def test_the_known_revisions_are_those_there_are() -> None:
    assert migrations.history(schema.REVISIONS.locations) == schema.REVISIONS.known


def test_up_down_and_up_again(connection: Connection) -> None:
    schema.migrate(connection)
    whole = described(connection)
    migrations.downgrade(connection, schema.REVISIONS.locations, "base")
    assert set(described(connection)) == {"alembic_version"}
    assert schema.find_revision(connection) == ""
    schema.migrate(connection)
    assert described(connection) == whole


def test_one_step_up_and_down_keeps_the_data(connection: Connection, tmp_path: Path) -> None:
    schema.create(connection)
    connection.execute(insert(archives), ARCHIVE)
    before = described(connection)
    newer = later(tmp_path)
    schema.migrate(connection, newer)
    assert version(connection) == ["0002test"]
    assert connection.execute(text("SELECT name, colour FROM archives")).one() == ("kept", None)
    migrations.downgrade(connection, newer.locations, schema.REVISIONS.newest)
    assert described(connection) == before
    assert connection.execute(text("SELECT name FROM archives")).scalars().all() == ["kept"]
    schema.migrate(connection, newer)
    assert connection.execute(text("SELECT name FROM archives")).scalars().all() == ["kept"]


def test_an_upgrade_counts_what_is_stored_already(connection: Connection) -> None:
    """A database from before usage was counted gets counters that equal a recount, and they stay right."""
    migrations.upgrade(connection, schema.REVISIONS.locations, "0001")
    fill = """
        INSERT INTO organizations VALUES ('org', 'ours', 0, 1, 1), ('other', 'empty', 0, 1, 1);
        INSERT INTO agents (id, organization_id, name, agent_type, system, model, embedding_chunk_size, tool_rules,
            timezone, message_buffer_autoclear, stopped, created_at, updated_at, version)
            VALUES ('agent', 'org', 'a', 't', 'Grüße', '{}', 1, '[]', 'UTC', 0, 0, 1, 1, 1);
        INSERT INTO messages (id, agent_id, seq, role, content, tool_calls, tool_returns, is_err, created_at)
            VALUES ('m1', 'agent', 1, 'user', '["hello"]', '[]', '[]', 0, 1),
                   ('m2', 'agent', 2, 'user', '["ö"]', '[]', '[]', 0, 1);
        INSERT INTO blocks (id, organization_id, label, value, "limit", read_only, metadata, is_template,
            preserve_on_migration, created_at, updated_at, version)
            VALUES ('block', 'org', 'l', 'value', 1, 0, '{}', 0, 0, 1, 1, 1);
        INSERT INTO block_history (block_id, version, value, fields, at, author)
            VALUES ('block', 1, 'value', '{}', 1, 'user')"""
    for statement in fill.split(";\n"):
        connection.exec_driver_sql(statement)
    schema.migrate(connection)
    ours = usage.state(connection, OrganizationId("org")).used
    stored = len("Grüße".encode()) + len('["hello"]["ö"]'.encode()) + 4 * len("[]") + 2 * len("value{}")
    assert ours == OrganizationUsage(agents=1, messages=2, bytes=stored)
    assert usage.deviation(connection, OrganizationId("org")) == OrganizationUsage()
    assert usage.state(connection, OrganizationId("other")).used == OrganizationUsage()
    connection.exec_driver_sql("UPDATE messages SET content = '[]' WHERE id = 'm1'")
    connection.exec_driver_sql("DELETE FROM messages WHERE id = 'm2'")
    connection.exec_driver_sql("DELETE FROM blocks")  # and its history, by its foreign key
    kept = usage.state(connection, OrganizationId("org")).used
    assert kept == OrganizationUsage(1, 1, len("Grüße".encode()) + 3 * len("[]"))
    assert usage.deviation(connection, OrganizationId("org")) == OrganizationUsage()


async def test_an_empty_database_is_created_and_then_left_alone(database: SqliteDatabase) -> None:
    assert await schema.ensure_schema(database) == ""
    assert await schema.ensure_schema(database) == schema.REVISIONS.newest
    await database.transact(lambda tx: tx.execute(insert(archives), ARCHIVE))
    assert await schema.ensure_schema(database) == schema.REVISIONS.newest
    assert await database.read(lambda tx: tx.execute(text("SELECT name FROM archives")).scalar()) == "kept"


async def test_an_older_database_is_copied_and_then_migrated(database: SqliteDatabase, tmp_path: Path) -> None:
    await schema.ensure_schema(database)
    await database.transact(lambda tx: tx.execute(insert(archives), ARCHIVE))
    (tmp_path / "revisions").mkdir()
    newer = later(tmp_path / "revisions")
    assert await schema.ensure_schema(database, back_up=database.back_up, revisions=newer) == schema.REVISIONS.newest
    assert await database.read(version) == ["0002test"]
    assert await database.read(lambda tx: tx.execute(text("SELECT colour FROM archives")).scalar()) is None
    with sqlite3.connect(tmp_path / f"test.db.schema-{schema.REVISIONS.newest}.backup") as copy:
        assert copy.execute("SELECT version_num FROM alembic_version").fetchone() == (schema.REVISIONS.newest,)
        assert copy.execute("SELECT name FROM archives").fetchone() == ("kept",)
    copy.close()


async def test_a_migration_that_fails_changes_nothing(database: SqliteDatabase, tmp_path: Path) -> None:
    await schema.ensure_schema(database)
    await database.transact(lambda tx: tx.execute(insert(archives), ARCHIVE))
    before = await database.read(described)
    (tmp_path / "revisions").mkdir()
    broken = later(tmp_path / "revisions", 'op.execute("INSERT INTO nowhere VALUES (1)")')
    with pytest.raises(StorageError, match="nowhere"):
        await schema.ensure_schema(database, back_up=database.back_up, revisions=broken)
    assert await database.read(described) == before
    assert await database.read(version) == [schema.REVISIONS.newest]


async def test_without_its_copy_nothing_is_migrated(database: SqliteDatabase, tmp_path: Path) -> None:
    async def fails(label: str) -> None:
        raise StorageError("no room for a copy")

    await schema.ensure_schema(database)
    (tmp_path / "revisions").mkdir()
    with pytest.raises(StorageError, match="no room"):
        await schema.ensure_schema(database, back_up=fails, revisions=later(tmp_path / "revisions"))
    assert await database.read(version) == [schema.REVISIONS.newest]


async def test_a_newer_database_is_refused(database: SqliteDatabase) -> None:
    await schema.ensure_schema(database)
    await database.transact(lambda tx: tx.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    with pytest.raises(ConfigurationError, match=r"schema 9999, which is newer .* start a newer Kelpie"):
        await schema.ensure_schema(database)


async def test_somebody_elses_database_is_refused(database: SqliteDatabase) -> None:
    await database.transact(lambda tx: tx.execute(text("CREATE TABLE customers (id INTEGER)")))
    with pytest.raises(ConfigurationError, match="customers"):
        await schema.ensure_schema(database)
    assert await database.read(lambda tx: set(described(tx))) == {"customers"}


def test_a_start_without_a_migration_does_not_import_alembic(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from kelpie.storage.schema import ensure_schema\n"
        "from kelpie.world.sqlite.database import SqliteDatabase\n"
        "async def main():\n"
        "    for _ in range(2):\n"
        "        database = SqliteDatabase.open(sys.argv[1])\n"
        "        await ensure_schema(database, back_up=database.back_up)\n"
        "        await database.close()\n"
        "asyncio.run(main())\n"
        "print('alembic' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "x.db")], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
