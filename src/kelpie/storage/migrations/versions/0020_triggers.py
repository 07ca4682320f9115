"""Triggers: schedules, their firings, and webhooks.

The triggers of the database are written out as they were at this revision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_COUNTED = (("schedules", "said", "{row}.organization_id"),)


def upgrade() -> None:
    op.create_table(
        "hooks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("instructions", sa.Text(), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_hooks_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hooks")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_hooks_token_hash")),
    )
    op.create_index(op.f("ix_hooks_agent_id_created_at_id"), "hooks", ["agent_id", "created_at", "id"], unique=False)
    op.create_index(
        op.f("ix_hooks_organization_id_created_at_id"), "hooks", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_table(
        "schedules",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("said", sa.JSON(), nullable=False),
        sa.Column("scheduled_at", sa.BigInteger(), nullable=True),
        sa.Column("recurrence", sa.Text(), nullable=True),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("missed", sa.Text(), nullable=False),
        sa.Column("missed_max", sa.Integer(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=True),
        sa.Column("last_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_schedules_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
    )
    op.create_index(
        op.f("ix_schedules_agent_id_created_at_id"), "schedules", ["agent_id", "created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_schedules_next_at"), "schedules", ["next_at"], unique=False)
    op.create_index(
        op.f("ix_schedules_organization_id_created_at_id"),
        "schedules",
        ["organization_id", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "firings",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("schedule_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("manual", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("attempt_at", sa.BigInteger(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name=op.f("fk_firings_schedule_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_firings")),
        sa.UniqueConstraint("schedule_id", "due_at", "manual", name=op.f("uq_firings_schedule_id_due_at_manual")),
    )
    op.create_index(op.f("ix_firings_attempt_at"), "firings", ["attempt_at"], unique=False)
    op.create_index(
        op.f("ix_firings_organization_id_status_created_at_id"),
        "firings",
        ["organization_id", "status", "created_at", "id"],
        unique=False,
    )
    op.create_index(op.f("ix_firings_run_id"), "firings", ["run_id"], unique=False)
    op.create_index(
        op.f("ix_firings_schedule_id_status_due_at"), "firings", ["schedule_id", "status", "due_at"], unique=False
    )
    op.create_index(op.f("ix_firings_status_updated_at_id"), "firings", ["status", "updated_at", "id"], unique=False)
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
    op.drop_table("firings")
    op.drop_table("schedules")
    op.drop_table("hooks")


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
