"""Agent files: what an agent came with that this server cannot use yet, and imported agents in the counters.

The triggers are written out as they were at this revision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_OF_AGENT = (
    "(SELECT CASE WHEN owner.organization_id <> '' THEN owner.organization_id ELSE (SELECT removed.organization_id "
    "FROM removed_agents AS removed WHERE removed.agent_id = owner.id) END FROM agents AS owner "
    "WHERE owner.id = {row}.agent_id)"
)


def upgrade() -> None:
    op.create_table(
        "agent_file_parts",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_file_parts_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_agent_file_parts")),
    )
    for name, event, action in _triggers(op.get_bind().dialect.name):
        op.execute(_trigger(op.get_bind().dialect.name, name, event, action))


def downgrade() -> None:
    dialect = op.get_bind().dialect.name
    for name, event, _ in _triggers(dialect):
        on = "" if dialect == "sqlite" else f" ON {event.split()[-1]}"
        op.execute(f"DROP TRIGGER {name}{on}")
        if dialect != "sqlite":
            op.execute(f"DROP FUNCTION {name}()")
    op.drop_table("agent_file_parts")


def _triggers(dialect: str) -> list[tuple[str, str, str]]:
    """Each with its name, its event, which ends with the name of its table, and its action."""
    new, old = _size("NEW.document", dialect), _size("OLD.document", dialect)
    name, table = "usage_agent_file_parts", "agent_file_parts"
    counted = "UPDATE organization_usage SET bytes = bytes {change} WHERE organization_id = {owner}"
    of_new, of_old = _OF_AGENT.format(row="NEW"), _OF_AGENT.format(row="OLD")
    agent = (
        _system(dialect),
        _size("NEW.description", dialect),
        _size("NEW.metadata", dialect),
    )
    return [
        (f"{name}_insert", f"AFTER INSERT ON {table}", counted.format(change=f"+ ({new})", owner=of_new)),
        (f"{name}_delete", f"AFTER DELETE ON {table}", counted.format(change=f"- ({old})", owner=of_old)),
        (
            f"{name}_update",
            f"AFTER UPDATE OF document ON {table}",
            counted.format(change=f"+ ({new}) - ({old})", owner=of_new),
        ),
        (
            "usage_agents_published",
            "AFTER UPDATE OF organization_id ON agents",
            f"UPDATE organization_usage SET agents = agents + 1, bytes = bytes + ({' + '.join(agent)}) "
            "WHERE organization_id = NEW.organization_id AND OLD.organization_id = ''",
        ),
    ]


def _size(column: str, dialect: str) -> str:
    size = f"length(CAST({column} AS BLOB))" if dialect == "sqlite" else f"octet_length(CAST({column} AS TEXT))"
    return f"coalesce({size}, 0)"


def _system(dialect: str) -> str:
    """The size of the instructions, which SQLite may hold packed, with their size in front."""
    if dialect != "sqlite":
        return _size("NEW.system", dialect)
    return (
        "coalesce(CASE typeof(NEW.system) WHEN 'blob' THEN CAST(NEW.system AS INTEGER) "
        "ELSE length(CAST(NEW.system AS BLOB)) END, 0)"
    )


def _trigger(dialect: str, name: str, event: str, action: str) -> str:
    if dialect == "sqlite":
        return f"CREATE TRIGGER {name} {event} FOR EACH ROW BEGIN {action}; END"
    return (
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {action}; RETURN NULL; END $$; "
        f"CREATE TRIGGER {name} {event} FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
