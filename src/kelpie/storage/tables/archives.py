"""Archival memory: archives, the agents that use them, and their passages."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, Integer, Table, Text

from kelpie.storage.rows.checksums import ChecksummedJson
from kelpie.storage.tables.metadata import metadata

archives = Table(
    "archives",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("embedding", Text),
    Column("embedding_chunk_size", Integer, nullable=False),
    Column("removed", Boolean, nullable=False),  # deleted for clients; its contents are being deleted
    Column("metadata", JSON),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "removed"),
)

# An agent has one archive at most, so it is always clear where it writes to.
agent_archives = Table(
    "agent_archives",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("archive_id", Text, ForeignKey("archives.id", ondelete="CASCADE"), nullable=False),
    Column("is_owner", Boolean, nullable=False),
    Index(None, "archive_id"),
)

passages = Table(
    "passages",
    metadata,
    Column("id", Text, primary_key=True),
    Column("archive_id", Text, ForeignKey("archives.id", ondelete="CASCADE"), nullable=False),
    Column("organization_id", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("tags", ChecksummedJson, nullable=False),
    Column("metadata", ChecksummedJson, nullable=False),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("checksum", BigInteger),  # of text, tags and metadata; what does not match is not shown
    Column("batch_id", Text),  # the file or batch it came with; None for a passage by itself
    Column("position", BigInteger),  # its position in that
    Index(None, "archive_id", "created_at", "id"),
    Index(None, "organization_id", "created_at", "id"),
)

# The tags once more, to be searched by; a passage never changes, so the two cannot part.
passage_tags = Table(
    "passage_tags",
    metadata,
    Column("passage_id", Text, ForeignKey("passages.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", Text, primary_key=True),
)
