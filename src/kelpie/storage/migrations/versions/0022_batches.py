"""Batches: their items, and the callbacks of jobs.

The triggers of the database are written out as they were at this revision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_COUNTED = (("batch_items", "given", "{row}.organization_id"),)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("callback_due_at", sa.BigInteger(), nullable=True))
    op.add_column("jobs", sa.Column("callback_attempts", sa.Integer(), nullable=False, server_default="0"))
    op.create_index(op.f("ix_jobs_callback_due_at"), "jobs", ["callback_due_at"], unique=False)
    op.create_index(op.f("ix_jobs_job_type_status_id"), "jobs", ["job_type", "status", "id"], unique=False)
    op.create_table(
        "batch_items",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("given", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["jobs.id"], name=op.f("fk_batch_items_batch_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("batch_id", "place", name=op.f("pk_batch_items")),
    )
    op.create_index(
        op.f("ix_batch_items_batch_id_status_place"), "batch_items", ["batch_id", "status", "place"], unique=False
    )
    op.create_index(op.f("ix_batch_items_run_id"), "batch_items", ["run_id"], unique=False)
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
    op.drop_table("batch_items")
    op.drop_index(op.f("ix_jobs_callback_due_at"), "jobs")
    op.drop_index(op.f("ix_jobs_job_type_status_id"), "jobs")
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_column("callback_due_at")
        jobs.drop_column("callback_attempts")


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
