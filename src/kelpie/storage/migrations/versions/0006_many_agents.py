"""Indexes that keep lists of agents fast when there are very many: by name, by a part of a name, and of hidden agents.

The index by parts of names is written out as it was at this revision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0003"
branch_labels = None
depends_on = None

_NUMBER = "SELECT number FROM agent_numbers WHERE agent_id = {row}.id"


def upgrade() -> None:
    op.drop_index(op.f("ix_agents_organization_id_name"), table_name="agents")
    op.create_index(
        op.f("ix_agents_organization_id_name_created_at_id"), "agents", ["organization_id", "name", "created_at", "id"]
    )
    hidden = sa.text("hidden")
    op.create_index("ix_agents_hidden", "agents", ["organization_id"], sqlite_where=hidden, postgresql_where=hidden)
    if op.get_bind().dialect.name == "sqlite":
        _index_names()


def _index_names() -> None:
    added = f"INSERT INTO agent_names (rowid, name) SELECT number, NEW.name FROM ({_NUMBER.format(row='NEW')})"
    removed = (
        "INSERT INTO agent_names (agent_names, rowid, name) "
        f"SELECT 'delete', number, OLD.name FROM ({_NUMBER.format(row='OLD')})"
    )
    op.execute("CREATE TABLE agent_numbers (number INTEGER PRIMARY KEY, agent_id TEXT NOT NULL UNIQUE)")
    op.execute("CREATE VIRTUAL TABLE agent_names USING fts5(name, content='', tokenize='trigram', detail='none')")
    op.execute("INSERT INTO agent_numbers (agent_id) SELECT id FROM agents ORDER BY created_at, id")
    op.execute(
        "INSERT INTO agent_names (rowid, name) SELECT numbered.number, agents.name FROM agents "
        "JOIN agent_numbers AS numbered ON numbered.agent_id = agents.id"
    )
    op.execute(
        "CREATE TRIGGER agent_name_insert AFTER INSERT ON agents FOR EACH ROW BEGIN "
        f"INSERT INTO agent_numbers (agent_id) VALUES (NEW.id); {added}; END"
    )
    op.execute(
        "CREATE TRIGGER agent_name_update AFTER UPDATE OF name ON agents FOR EACH ROW WHEN NEW.name <> OLD.name BEGIN "
        f"{removed}; {added}; END"
    )
    op.execute(
        "CREATE TRIGGER agent_name_delete AFTER DELETE ON agents FOR EACH ROW BEGIN "
        f"{removed}; DELETE FROM agent_numbers WHERE agent_id = OLD.id; END"
    )


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for trigger in ("agent_name_insert", "agent_name_update", "agent_name_delete"):
            op.execute(f"DROP TRIGGER {trigger}")
        op.execute("DROP TABLE agent_names")
        op.execute("DROP TABLE agent_numbers")
    op.drop_index("ix_agents_hidden", table_name="agents")
    op.drop_index(op.f("ix_agents_organization_id_name_created_at_id"), table_name="agents")
    op.create_index(op.f("ix_agents_organization_id_name"), "agents", ["organization_id", "name"])
