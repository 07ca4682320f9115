"""Less space for an agent: narrower indexes, its number in the index of names as a column, and short default authors.

An index by time does not need the ids too: rows of the same microsecond are sorted when they are read. The default user
is stored as an empty text; agents are changed at once, because a filter compares that column, and other rows when they
are next written. The triggers are written out as they were at this revision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_DEFAULT_USER = "user-00000000-0000-4000-8000-000000000000"
_INDEXES = (("agents", "organization_id", "created_at"), ("agents", "organization_id", "name", "created_at"))
_INDEXES += (("blocks", "organization_id", "created_at"),)
_AUTHORS = (("agents", "created_by_id"), ("agents", "last_updated_by_id"))
_AUTHORS_LATER = (("blocks", "created_by_id"), ("blocks", "last_updated_by_id"), ("block_history", "author_id"))


def upgrade() -> None:
    for table, *columns in _INDEXES:
        _replace_index(table, [*columns, "id"], columns)
    for table, column in _AUTHORS:
        _replace_author(table, column, _DEFAULT_USER, "")
    if op.get_bind().dialect.name == "sqlite":
        _drop_triggers()
        op.execute("ALTER TABLE agents ADD COLUMN name_number INTEGER")
        op.execute(
            "UPDATE agents SET name_number = (SELECT number FROM agent_numbers AS old WHERE old.agent_id = agents.id)"
        )
        op.execute("CREATE UNIQUE INDEX ix_agents_name_number ON agents (name_number)")
        op.execute("DROP TABLE agent_numbers")
        _make_triggers(
            inserted="UPDATE agents SET name_number = (SELECT coalesce(max(name_number), 0) + 1 FROM agents) "
            "WHERE rowid = NEW.rowid; INSERT INTO agent_names (rowid, name) "
            "VALUES ((SELECT name_number FROM agents WHERE rowid = NEW.rowid), NEW.name)",
            added="INSERT INTO agent_names (rowid, name) VALUES (NEW.name_number, NEW.name)",
            removed="INSERT INTO agent_names (agent_names, rowid, name) VALUES ('delete', OLD.name_number, OLD.name)",
            deleted="",
        )


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _drop_triggers()
        op.execute("CREATE TABLE agent_numbers (number INTEGER PRIMARY KEY, agent_id TEXT NOT NULL UNIQUE)")
        op.execute("INSERT INTO agent_numbers (number, agent_id) SELECT name_number, id FROM agents")
        op.execute("DROP INDEX ix_agents_name_number")
        op.execute("ALTER TABLE agents DROP COLUMN name_number")
        number = "SELECT number FROM agent_numbers WHERE agent_id = {row}.id"
        added = f"INSERT INTO agent_names (rowid, name) SELECT number, NEW.name FROM ({number.format(row='NEW')})"
        _make_triggers(
            inserted=f"INSERT INTO agent_numbers (agent_id) VALUES (NEW.id); {added}",
            added=added,
            removed="INSERT INTO agent_names (agent_names, rowid, name) "
            f"SELECT 'delete', number, OLD.name FROM ({number.format(row='OLD')})",
            deleted="; DELETE FROM agent_numbers WHERE agent_id = OLD.id",
        )
    for table, column in (*_AUTHORS, *_AUTHORS_LATER):
        _replace_author(table, column, "", _DEFAULT_USER)
    for table, *columns in _INDEXES:
        _replace_index(table, columns, [*columns, "id"])


def _replace_index(table: str, old: list[str], new: list[str]) -> None:
    op.drop_index(op.f(f"ix_{table}_{'_'.join(old)}"), table_name=table)
    op.create_index(op.f(f"ix_{table}_{'_'.join(new)}"), table, new, unique=False)


def _replace_author(table: str, column: str, old: str, new: str) -> None:
    rows = sa.table(table, sa.column(column))
    op.execute(rows.update().where(rows.c[column] == old).values({column: new}))


def _drop_triggers() -> None:
    for event in ("insert", "update", "delete"):
        op.execute(f"DROP TRIGGER agent_name_{event}")


def _make_triggers(*, inserted: str, added: str, removed: str, deleted: str) -> None:
    op.execute(f"CREATE TRIGGER agent_name_insert AFTER INSERT ON agents FOR EACH ROW BEGIN {inserted}; END")
    op.execute(
        "CREATE TRIGGER agent_name_update AFTER UPDATE OF name ON agents FOR EACH ROW WHEN NEW.name <> OLD.name BEGIN "
        f"{removed}; {added}; END"
    )
    op.execute(f"CREATE TRIGGER agent_name_delete AFTER DELETE ON agents FOR EACH ROW BEGIN {removed}{deleted}; END")
