"""Memory blocks, their history, and their attachments to agents."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Table, Text

from kelpie.storage.rows.authors import AuthorId
from kelpie.storage.rows.checksums import ChecksummedJson
from kelpie.storage.rows.standard_texts import PackedChecksummedJson
from kelpie.storage.tables.metadata import metadata

blocks = Table(
    "blocks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("limit", BigInteger, nullable=False),
    Column("description", Text),
    Column("read_only", Boolean, nullable=False),
    Column("metadata", ChecksummedJson, nullable=False),
    Column("hidden", Boolean),
    Column("project_id", Text),
    Column("template_name", Text),
    Column("is_template", Boolean, nullable=False),
    Column("template_id", Text),
    Column("base_template_id", Text),
    Column("deployment_id", Text),
    Column("entity_id", Text),
    Column("preserve_on_migration", Boolean, nullable=False),
    Column("created_by_id", AuthorId),
    Column("last_updated_by_id", AuthorId),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("checksum", BigInteger),  # of what it says and how it may be changed; what does not match is not shown
    Index(None, "organization_id", "created_at"),  # rows of the same microsecond are sorted by their ids when read
    Index(None, "organization_id", "label"),
)

block_tags = Table(
    "block_tags",
    metadata,
    Column("block_id", Text, ForeignKey("blocks.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", Text, primary_key=True),
    Index(None, "tag"),
)

# The label is part of the key: an agent has at most one block of each label. It follows the block's label.
agent_blocks = Table(
    "agent_blocks",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("label", Text, primary_key=True),
    Column("block_id", Text, ForeignKey("blocks.id", ondelete="CASCADE"), nullable=False),
    Index(None, "block_id"),
    sqlite_with_rowid=False,
)

# A row for each version that a block has had. The run, the step and the key may be gone by now; the record stays.
block_history = Table(
    "block_history",
    metadata,
    Column("block_id", Text, ForeignKey("blocks.id", ondelete="CASCADE"), primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("value", Text, nullable=False),
    Column("fields", PackedChecksummedJson, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("author", Text, nullable=False),
    Column("author_id", AuthorId),
    Column("key_id", Text),
    Column("run_id", Text),
    Column("step_id", Text),
    Column("tool", Text),
    Column("restores", BigInteger),
    Column("checksum", BigInteger),  # of all but the value, which a listing does not read
    Column("value_checksum", BigInteger),
)
