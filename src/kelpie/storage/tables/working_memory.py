"""Working memory: entries by agent and key, and the number that the next write of an agent gets."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table, Text, column

from kelpie.storage.tables.metadata import metadata

_ENDING = column("expires_at").is_not(None)  # most entries stay; the indexes hold the others

working_memory = Table(
    "working_memory",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),  # JSON
    Column("bytes", Integer, nullable=False),  # of key and value
    Column("version", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Index(
        "ix_working_memory_of_agent_ending",
        "agent_id",
        "expires_at",
        sqlite_where=_ENDING,
        postgresql_where=_ENDING,
    ),
    Index("ix_working_memory_ending", "expires_at", sqlite_where=_ENDING, postgresql_where=_ENDING),
)

# Its row is what writers of one agent wait for each other at, so that together they keep to the bounds.
working_memory_heads = Table(
    "working_memory_heads",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("version", BigInteger, nullable=False),
)
