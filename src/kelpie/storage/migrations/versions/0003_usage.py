"""Usage and quotas of organizations, counted by triggers; deleted agents and changes of memory in several steps.

The counters of what is stored already are computed here. The triggers are written out as they were at this revision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_OF_AGENT = (
    "(SELECT CASE WHEN owner.organization_id <> '' THEN owner.organization_id ELSE (SELECT removed.organization_id "
    "FROM removed_agents AS removed WHERE removed.agent_id = owner.id) END FROM agents AS owner "
    "WHERE owner.id = {row}.agent_id)"
)
_OF_ROW = "{row}.organization_id"
_OF_BLOCK = "(SELECT owner.organization_id FROM blocks AS owner WHERE owner.id = {row}.block_id)"
_COUNTED = (
    ("agents", _OF_ROW, ("system", "description", "metadata"), "agents"),
    ("messages", _OF_AGENT, ("content", "tool_calls", "tool_returns", "answers"), "messages"),
    ("passages", _OF_ROW, ("text", "tags", "metadata"), None),
    ("blocks", _OF_ROW, ("value", "description", "metadata"), None),
    ("block_history", _OF_BLOCK, ("value", "fields"), None),
    ("facts", _OF_AGENT, ("subject", "attribute", "value", "statement"), None),
    ("working_memory", _OF_AGENT, ("key", "value"), None),
    ("tools", _OF_ROW, ("description", "source_code", "json_schema"), None),
    ("runs", _OF_ROW, ("input", "metadata", "request_config"), None),
)


def upgrade() -> None:
    op.create_table(
        "organization_usage",
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agents", sa.BigInteger(), nullable=False),
        sa.Column("messages", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_organization_usage_organization_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_organization_usage")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "organization_quotas",
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_organization_quotas_organization_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_organization_quotas")),
    )
    op.create_table(
        "removed_agents",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_removed_agents_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_removed_agents")),
    )
    op.create_index(op.f("ix_removed_agents_organization_id"), "removed_agents", ["organization_id"], unique=False)
    op.create_table(
        "memory_changes",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("decided", sa.Boolean(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_memory_changes_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_memory_changes")),
    )
    op.create_table(
        "memory_change_parts",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["memory_changes.agent_id"],
            name=op.f("fk_memory_change_parts_agent_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("agent_id", "number", name=op.f("pk_memory_change_parts")),
    )
    dialect = op.get_bind().dialect.name
    _count(dialect)
    for _, statement in _triggers(dialect):
        op.execute(statement)


def downgrade() -> None:
    dialect = op.get_bind().dialect.name
    for event, statement in _triggers(dialect):
        name, table = statement.split()[2].removesuffix("()"), event.split()[-1]
        on = "" if dialect == "sqlite" else f" ON {table}"
        op.execute(f"DROP TRIGGER {name}{on}")
        if dialect != "sqlite":
            op.execute(f"DROP FUNCTION {name}()")
    op.drop_table("memory_change_parts")
    op.drop_table("memory_changes")
    op.drop_table("removed_agents")
    op.drop_table("organization_quotas")
    op.drop_table("organization_usage")


def _count(dialect: str) -> None:
    """Counts what every organization stores now."""
    op.execute(
        "INSERT INTO organization_usage (organization_id, agents, messages, bytes) "
        "SELECT id, 0, 0, 0 FROM organizations"
    )
    for table, owner, columns, counter in _COUNTED:
        rows = f"FROM {table} AS counted WHERE {owner.format(row='counted')} = organization_usage.organization_id"
        counted = f"{counter} = (SELECT count(*) {rows}), " if counter else ""
        size = _measured(columns, "counted", dialect)
        op.execute(f"UPDATE organization_usage SET {counted}bytes = bytes + (SELECT coalesce(sum({size}), 0) {rows})")


def _measured(columns: tuple[str, ...], row: str, dialect: str) -> str:
    size = "length(CAST({0} AS BLOB))" if dialect == "sqlite" else "octet_length(CAST({0} AS TEXT))"
    return " + ".join(f"coalesce({size.format(f'{row}.{name}')}, 0)" for name in columns)


def _triggers(dialect: str) -> list[tuple[str, str]]:
    """Each with its event, which ends with the name of its table."""
    new_row = "INSERT INTO organization_usage (organization_id, agents, messages, bytes) VALUES (NEW.id, 0, 0, 0)"
    found = [_trigger(dialect, "usage_of_organization", "AFTER INSERT ON organizations", new_row)]
    for table, owner, columns, counter in _COUNTED:
        old, new = _measured(columns, "OLD", dialect), _measured(columns, "NEW", dialect)
        for event, row, sign, size in (("insert", "NEW", "+", new), ("delete", "OLD", "-", old)):
            rows = f"{counter} = {counter} {sign} 1, " if counter else ""
            action = (
                f"UPDATE organization_usage SET {rows}bytes = bytes {sign} ({size}) "
                f"WHERE organization_id = {owner.format(row=row)}"
            )
            found.append(_trigger(dialect, f"usage_{table}_{event}", f"AFTER {event.upper()} ON {table}", action))
        action = (
            f"UPDATE organization_usage SET bytes = bytes + ({new}) - ({old}) "
            f"WHERE organization_id = {owner.format(row='NEW')}"
        )
        event = f"AFTER UPDATE OF {', '.join(columns)} ON {table}"
        found.append(_trigger(dialect, f"usage_{table}_update", event, action))
    size = _measured(_COUNTED[0][2], "OLD", dialect)
    action = (
        f"UPDATE organization_usage SET agents = agents - 1, bytes = bytes - ({size}) "
        "WHERE organization_id = OLD.organization_id AND NEW.organization_id = ''"
    )
    found.append(_trigger(dialect, "usage_agents_removed", "AFTER UPDATE OF organization_id ON agents", action))
    versions = _measured(("value", "fields"), "past", dialect)
    action = (
        "UPDATE organization_usage SET bytes = bytes - coalesce((SELECT sum("
        f"{versions}) FROM block_history AS past WHERE past.block_id = OLD.id), 0) "
        "WHERE organization_id = OLD.organization_id"
    )
    found.append(_trigger(dialect, "usage_block_history_of_block", "BEFORE DELETE ON blocks", action, "OLD"))
    return found


def _trigger(dialect: str, name: str, event: str, action: str, result: str = "NULL") -> tuple[str, str]:
    if dialect == "sqlite":
        return event, f"CREATE TRIGGER {name} {event} FOR EACH ROW BEGIN {action}; END"
    return event, (
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {action}; RETURN {result}; END $$; "
        f"CREATE TRIGGER {name} {event} FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
