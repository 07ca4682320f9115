"""Usage and quotas of organizations, agents whose rows are being deleted, and changes of memory that take several
transactions.

`organization_usage` is written by triggers alone (`storage.usage_triggers`), so it cannot be forgotten by a statement.
"""

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, LargeBinary, Table, Text

from kelpie.storage.tables.metadata import metadata

organization_usage = Table(
    "organization_usage",
    metadata,
    Column("organization_id", Text, ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True),
    Column("agents", BigInteger, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

# One row for an organization whose limits are not the server's. A limit that is missing here is the server's.
organization_quotas = Table(
    "organization_quotas",
    metadata,
    Column("organization_id", Text, ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True),
    Column("limits", JSON, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

# Agents that were deleted: for clients they are gone, and their rows are deleted in pieces. Such an agent belongs to
# no organization any more; this row remembers the one that its rows count for.
removed_agents = Table(
    "removed_agents",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("removed_at", BigInteger, nullable=False),
    Index(None, "organization_id"),
)

# One row while the memory of an agent is replaced in several transactions. It is decided once `decided` is true: from
# then on the change is completed, also after a crash; before, it is dropped.
memory_changes = Table(
    "memory_changes",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("decided", Boolean, nullable=False),
    Column("request", JSON, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# The document of a restore in parts of bounded size.
memory_change_parts = Table(
    "memory_change_parts",
    metadata,
    Column("agent_id", Text, ForeignKey("memory_changes.agent_id", ondelete="CASCADE"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)
