"""Folders, files with their text, the files that agents have open, and the number of files in the counters.

The triggers are written out as they were at this revision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_COUNTED = (
    ("folders", ("description", "instructions", "metadata"), ""),
    ("files", ("name", "original_name", "error"), "files"),
    ("file_passages", ("text",), ""),
)
_PRESENT = sa.text("NOT removed")


def upgrade() -> None:
    op.add_column("organization_usage", sa.Column("files", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "folders",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("instructions", sa.Text(), nullable=True),
        sa.Column("embedding", sa.Text(), nullable=True),
        sa.Column("embedding_chunk_size", sa.Integer(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=True),
        sa.Column("removed", sa.Boolean(), nullable=False),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_folders")),
    )
    op.create_index(
        op.f("ix_folders_organization_id_created_at_id"), "folders", ["organization_id", "created_at", "id"]
    )
    op.create_index(
        op.f("uq_folders_organization_id_name"),
        "folders",
        ["organization_id", "name"],
        unique=True,
        sqlite_where=_PRESENT,
        postgresql_where=_PRESENT,
    )
    op.create_index(op.f("ix_folders_removed"), "folders", ["removed"])
    op.create_table(
        "files",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("folder_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("original_name", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("passages", sa.BigInteger(), nullable=True),
        sa.Column("indexed", sa.BigInteger(), nullable=False),
        sa.Column("embedded", sa.BigInteger(), nullable=False),
        sa.Column("lines", sa.BigInteger(), nullable=False),
        sa.Column("chars", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("removed", sa.Boolean(), nullable=False),
        sa.Column("opened_after", sa.Text(), nullable=True),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["folder_id"], ["folders.id"], name=op.f("fk_files_folder_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
    )
    op.create_index(op.f("ix_files_folder_id_created_at_id"), "files", ["folder_id", "created_at", "id"])
    op.create_index(
        op.f("uq_files_folder_id_name"),
        "files",
        ["folder_id", "name"],
        unique=True,
        sqlite_where=_PRESENT,
        postgresql_where=_PRESENT,
    )
    op.create_index(
        op.f("ix_files_status_organization_id_updated_at"), "files", ["status", "organization_id", "updated_at"]
    )
    op.create_index(op.f("ix_files_removed"), "files", ["removed"])
    op.create_table(
        "file_passages",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("file_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("mid_line", sa.Boolean(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["file_id"], ["files.id"], name=op.f("fk_file_passages_file_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_file_passages")),
    )
    op.create_index(op.f("ix_file_passages_file_id_position"), "file_passages", ["file_id", "position"], unique=True)
    op.create_index(op.f("ix_file_passages_file_id_line_position"), "file_passages", ["file_id", "line", "position"])
    op.create_table(
        "agent_folders",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("folder_id", sa.Text(), nullable=False),
        sa.Column("attached_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_folders_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["folder_id"], ["folders.id"], name=op.f("fk_agent_folders_folder_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "folder_id", name=op.f("pk_agent_folders")),
    )
    op.create_index(op.f("ix_agent_folders_folder_id_agent_id"), "agent_folders", ["folder_id", "agent_id"])
    op.create_table(
        "file_views",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("file_id", sa.Text(), nullable=False),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("accessed_at", sa.BigInteger(), nullable=False),
        sa.Column("start_line", sa.BigInteger(), nullable=True),
        sa.Column("end_line", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_file_views_agent_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["file_id"], ["files.id"], name=op.f("fk_file_views_file_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("agent_id", "file_id", name=op.f("pk_file_views")),
    )
    op.create_index(op.f("ix_file_views_file_id"), "file_views", ["file_id"])
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
    for table in ("file_views", "agent_folders", "file_passages", "files", "folders"):
        op.drop_table(table)
    op.drop_column("organization_usage", "files")


def _triggers(dialect: str) -> list[tuple[str, str, str]]:
    """Each with its name, its event, which ends with the name of its table, and its action."""
    found: list[tuple[str, str, str]] = []
    for table, columns, counter in _COUNTED:
        new, old = (" + ".join(_size(f"{row}.{column}", dialect) for column in columns) for row in ("NEW", "OLD"))
        name = f"usage_{table}"
        found += [
            (f"{name}_insert", f"AFTER INSERT ON {table}", _added("NEW", "+", new, counter)),
            (f"{name}_delete", f"AFTER DELETE ON {table}", _added("OLD", "-", old, counter)),
            (
                f"{name}_update",
                f"AFTER UPDATE OF {', '.join(columns)} ON {table}",
                f"UPDATE organization_usage SET bytes = bytes + ({new}) - ({old}) "
                "WHERE organization_id = NEW.organization_id",
            ),
        ]
    return found


def _added(row: str, sign: str, size: str, counter: str) -> str:
    rows = f"{counter} = {counter} {sign} 1, " if counter else ""
    owner = f"{row}.organization_id"
    return f"UPDATE organization_usage SET {rows}bytes = bytes {sign} ({size}) WHERE organization_id = {owner}"


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
