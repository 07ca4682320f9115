"""Smaller rows: narrow tables are stored in the order of their keys, and standard texts may be packed.

Only SQLite differs. Narrow tables are copied; what is in the other tables stays as it is and is packed when it is next
written. The triggers that count bytes know packed columns; they are written out as they were at this revision.
"""

import sqlalchemy as sa
from alembic import op

from kelpie.storage.rows.standard_texts import PackedJson, PackedText

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_NARROW = {  # the columns of a table, those of its key, those that refer to other tables, and the indexed one
    "agent_tags": (("agent_id", "tag"), ("agent_id", "tag"), {"agent_id": "agents"}, "tag"),
    "agent_head": (
        ("agent_id", "owner", "owner_incarnation", "epoch", "version"),
        ("agent_id",),
        {"agent_id": "agents"},
        None,
    ),
    "agent_blocks": (
        ("agent_id", "label", "block_id"),
        ("agent_id", "label"),
        {"agent_id": "agents", "block_id": "blocks"},
        "block_id",
    ),
    "context": (
        ("agent_id", "conversation_id", "position", "message_id"),
        ("agent_id", "conversation_id", "position"),
        {"agent_id": "agents"},
        None,
    ),
    "agent_tools": (
        ("agent_id", "tool_id", "position"),
        ("agent_id", "tool_id"),
        {"agent_id": "agents", "tool_id": "tools"},
        "tool_id",
    ),
}
_NUMBERS = {
    ("agent_head", "owner_incarnation"): sa.BigInteger(),
    ("agent_head", "epoch"): sa.BigInteger(),
    ("agent_head", "version"): sa.BigInteger(),
    ("context", "position"): sa.BigInteger(),
    ("agent_tools", "position"): sa.Integer(),
}
_OWNER_AGENT = (
    "(SELECT CASE WHEN owner.organization_id <> '' THEN owner.organization_id ELSE (SELECT removed.organization_id "
    "FROM removed_agents AS removed WHERE removed.agent_id = owner.id) END FROM agents AS owner "
    "WHERE owner.id = {row}.agent_id)"
)
_OWNER_BLOCK = "(SELECT owner.organization_id FROM blocks AS owner WHERE owner.id = {row}.block_id)"
_COUNTED = (  # table, organization of a row, columns, the one of them that may be packed, counter
    ("agents", "{row}.organization_id", ("system", "description", "metadata"), "system", "agents"),
    ("messages", _OWNER_AGENT, ("content", "tool_calls", "tool_returns", "answers"), "content", "messages"),
    ("block_history", _OWNER_BLOCK, ("value", "fields"), "fields", None),
)


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _rebuild(with_rowid=False)
        _count(packed=True)


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _unpack("agents", ("id",), "system", PackedText())
        _unpack("agents", ("id",), "model", PackedJson())
        _unpack("agents", ("id",), "compaction_settings", PackedJson())
        _unpack("messages", ("id",), "content", PackedJson())
        _unpack("block_history", ("block_id", "version"), "fields", PackedJson())
        _count(packed=False)
        _rebuild(with_rowid=True)


def _rebuild(*, with_rowid: bool) -> None:
    for table, (columns, key, references, indexed) in _NARROW.items():
        if indexed:
            op.drop_index(op.f(f"ix_{table}_{indexed}"), table_name=table)
        op.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
        op.create_table(
            table,
            *(
                sa.Column(name, _NUMBERS.get((table, name), sa.Text()), nullable=name == "owner", autoincrement=False)
                for name in columns
            ),
            sa.PrimaryKeyConstraint(*key, name=op.f(f"pk_{table}")),
            *(
                sa.ForeignKeyConstraint([name], [f"{to}.id"], name=op.f(f"fk_{table}_{name}"), ondelete="CASCADE")
                for name, to in references.items()
            ),
            sqlite_with_rowid=with_rowid,
        )
        names = ", ".join(columns)
        op.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM old_{table} ORDER BY {', '.join(key)}")
        op.execute(f"DROP TABLE old_{table}")
        if indexed:
            op.create_index(op.f(f"ix_{table}_{indexed}"), table, [indexed], unique=False)


def _count(*, packed: bool) -> None:
    for table, owner, columns, small, counter in _COUNTED:
        small = small if packed else ""
        old, new = _measured(columns, small, "OLD"), _measured(columns, small, "NEW")
        for event, row, sign, size in (("insert", "NEW", "+", new), ("delete", "OLD", "-", old)):
            rows = f"{counter} = {counter} {sign} 1, " if counter else ""
            action = (
                f"UPDATE organization_usage SET {rows}bytes = bytes {sign} ({size}) "
                f"WHERE organization_id = {owner.format(row=row)}"
            )
            _replace(f"usage_{table}_{event}", f"AFTER {event.upper()} ON {table}", action)
        action = (
            f"UPDATE organization_usage SET bytes = bytes + ({new}) - ({old}) "
            f"WHERE organization_id = {owner.format(row='NEW')}"
        )
        _replace(f"usage_{table}_update", f"AFTER UPDATE OF {', '.join(columns)} ON {table}", action)
    size = _measured(_COUNTED[0][2], "system" if packed else "", "OLD")
    action = (
        f"UPDATE organization_usage SET agents = agents - 1, bytes = bytes - ({size}) "
        "WHERE organization_id = OLD.organization_id AND NEW.organization_id = ''"
    )
    _replace("usage_agents_removed", "AFTER UPDATE OF organization_id ON agents", action)
    versions = _measured(("value", "fields"), "fields" if packed else "", "past")
    action = (
        "UPDATE organization_usage SET bytes = bytes - coalesce((SELECT sum("
        f"{versions}) FROM block_history AS past WHERE past.block_id = OLD.id), 0) "
        "WHERE organization_id = OLD.organization_id"
    )
    _replace("usage_block_history_of_block", "BEFORE DELETE ON blocks", action)


def _measured(columns: tuple[str, ...], packed: str, row: str) -> str:
    plain = "length(CAST({0} AS BLOB))"
    either = f"CASE typeof({{0}}) WHEN 'blob' THEN CAST({{0}} AS INTEGER) ELSE {plain} END"
    sizes = ((either if name == packed else plain).format(f"{row}.{name}") for name in columns)
    return " + ".join(f"coalesce({size}, 0)" for size in sizes)


def _replace(name: str, event: str, action: str) -> None:
    op.execute(f"DROP TRIGGER {name}")
    op.execute(f"CREATE TRIGGER {name} {event} FOR EACH ROW BEGIN {action}; END")


def _unpack(table: str, key: tuple[str, ...], column: str, kind: PackedText | PackedJson) -> None:
    """Writes every packed value of a column as it was before."""
    packed = sa.table(table, *map(sa.column, key), sa.column(column, kind))
    stored = sa.Text() if isinstance(kind, PackedText) else sa.JSON()
    plain = sa.table(table, *map(sa.column, key), sa.column(column, stored))
    tx = op.get_bind()
    rows = sa.select(*packed.c).where(sa.func.typeof(packed.c[column]) == "blob")
    for *keys, value in tx.execute(rows).all():
        same = [plain.c[name] == of for name, of in zip(key, keys, strict=True)]
        tx.execute(sa.update(plain).where(*same).values({column: value}))
