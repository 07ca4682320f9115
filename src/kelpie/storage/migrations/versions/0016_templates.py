"""Templates, their versions, and the variables that agents were made with.

The triggers are written out as they were at this revision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_OF_AGENT = (
    "(SELECT CASE WHEN owner.organization_id <> '' THEN owner.organization_id ELSE (SELECT removed.organization_id "
    "FROM removed_agents AS removed WHERE removed.agent_id = owner.id) END FROM agents AS owner "
    "WHERE owner.id = {row}.agent_id)"
)
_COUNTED = (
    ("template_versions", "document", "{row}.organization_id"),
    ("agent_variables", "memory_variables", _OF_AGENT),
)


def upgrade() -> None:
    op.create_table(
        "templates",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("latest", sa.Integer(), nullable=False),
        sa.Column("base", sa.Integer(), nullable=False),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_templates")),
        sa.UniqueConstraint("organization_id", "name", name=op.f("uq_templates_organization_id_name")),
    )
    op.create_index(
        op.f("ix_templates_organization_id_created_at_id"), "templates", ["organization_id", "created_at", "id"]
    )
    op.create_table(
        "template_versions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("template_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("variables", sa.JSON(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=False),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["template_id"], ["templates.id"], name=op.f("fk_template_versions_template_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_template_versions")),
        sa.UniqueConstraint("template_id", "number", name=op.f("uq_template_versions_template_id_number")),
    )
    op.create_table(
        "agent_variables",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("memory_variables", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_variables_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_agent_variables")),
    )
    dialect = op.get_bind().dialect.name
    for name, event, action in _triggers(dialect):
        op.execute(_trigger(dialect, name, event, action))


def downgrade() -> None:
    dialect = op.get_bind().dialect.name
    for name, event, _ in _triggers(dialect):
        on = "" if dialect == "sqlite" else f" ON {event.split()[-1]}"
        op.execute(f"DROP TRIGGER {name}{on}")
        if dialect != "sqlite":
            op.execute(f"DROP FUNCTION {name}()")
    op.drop_table("agent_variables")
    op.drop_table("template_versions")
    op.drop_index(op.f("ix_templates_organization_id_created_at_id"), table_name="templates")
    op.drop_table("templates")


def _triggers(dialect: str) -> list[tuple[str, str, str]]:
    """Each with its name, its event, which ends with the name of its table, and its action."""
    found: list[tuple[str, str, str]] = []
    counted = "UPDATE organization_usage SET bytes = bytes {change} WHERE organization_id = {owner}"
    for table, column, owner in _COUNTED:
        new, old = _size(f"NEW.{column}", dialect), _size(f"OLD.{column}", dialect)
        of_new, of_old = owner.format(row="NEW"), owner.format(row="OLD")
        name = f"usage_{table}"
        found += [
            (f"{name}_insert", f"AFTER INSERT ON {table}", counted.format(change=f"+ ({new})", owner=of_new)),
            (f"{name}_delete", f"AFTER DELETE ON {table}", counted.format(change=f"- ({old})", owner=of_old)),
            (
                f"{name}_update",
                f"AFTER UPDATE OF {column} ON {table}",
                counted.format(change=f"+ ({new}) - ({old})", owner=of_new),
            ),
        ]
    return found


def _size(column: str, dialect: str) -> str:
    size = f"length(CAST({column} AS BLOB))" if dialect == "sqlite" else f"octet_length(CAST({column} AS TEXT))"
    return f"coalesce({size}, 0)"


def _trigger(dialect: str, name: str, event: str, action: str) -> str:
    if dialect == "sqlite":
        return f"CREATE TRIGGER {name} {event} FOR EACH ROW BEGIN {action}; END"
    return (
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {action}; RETURN NULL; END $$; "
        f"CREATE TRIGGER {name} {event} FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
