"""Turns of clients that send their history again with every request: OpenAI's.

The triggers are written out as they were at this revision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_COUNTED = "UPDATE organization_usage SET bytes = bytes {change} WHERE organization_id = {row}.organization_id"


def upgrade() -> None:
    op.create_table(
        "client_turns",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=True),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("known", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("call_id", sa.Text(), nullable=True),
        sa.Column("continued", sa.Boolean(), nullable=False),
        sa.Column("repeated", sa.Boolean(), nullable=False),
        sa.Column("request", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_client_turns_agent_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_client_turns_conversation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_client_turns")),
    )
    for columns in (["agent_id", "fingerprint"], ["conversation_id"], ["created_at"]):
        op.create_index(op.f(f"ix_client_turns_{'_'.join(columns)}"), "client_turns", columns)
    dialect = op.get_bind().dialect.name
    for name, event, action in _triggers(dialect):
        op.execute(_trigger(dialect, name, event, action))


def downgrade() -> None:
    dialect = op.get_bind().dialect.name
    for name, _, _ in _triggers(dialect):
        op.execute(f"DROP TRIGGER {name}{'' if dialect == 'sqlite' else ' ON client_turns'}")
        if dialect != "sqlite":
            op.execute(f"DROP FUNCTION {name}()")
    op.drop_table("client_turns")


def _triggers(dialect: str) -> list[tuple[str, str, str]]:
    """Each with its name, its event and its action."""
    new, old = _size("NEW.request", dialect), _size("OLD.request", dialect)
    name = "usage_client_turns"
    return [
        (f"{name}_insert", "AFTER INSERT ON client_turns", _COUNTED.format(change=f"+ ({new})", row="NEW")),
        (f"{name}_delete", "AFTER DELETE ON client_turns", _COUNTED.format(change=f"- ({old})", row="OLD")),
        (
            f"{name}_update",
            "AFTER UPDATE OF request ON client_turns",
            _COUNTED.format(change=f"+ ({new}) - ({old})", row="NEW"),
        ),
    ]


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
