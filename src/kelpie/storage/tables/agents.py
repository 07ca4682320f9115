"""Agents, rows that belong to one agent alone, and the nodes that own agents.

Every journal commit first moves `agent_head.version` under the epoch and owner it expects: the fence.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from kelpie.storage.rows.authors import AuthorId
from kelpie.storage.rows.standard_texts import PackedJson, PackedText
from kelpie.storage.tables.metadata import metadata

_HIDDEN = text("hidden")

agents = Table(
    "agents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("agent_type", Text, nullable=False),
    Column("system", PackedText, nullable=False),
    Column("model", PackedJson, nullable=False),
    Column("embedding", Text),
    Column("embedding_chunk_size", Integer, nullable=False),
    Column("description", Text),
    Column("metadata", JSON),
    Column("tool_rules", JSON, nullable=False),
    Column("timezone", Text, nullable=False),
    Column("hidden", Boolean),
    Column("project_id", Text),
    Column("template_id", Text),
    Column("base_template_id", Text),
    Column("deployment_id", Text),
    Column("entity_id", Text),
    Column("compaction_settings", PackedJson),
    Column("response_format", JSON),
    Column("message_buffer_autoclear", Boolean, nullable=False),
    Column("enable_sleeptime", Boolean),
    Column("max_files_open", Integer),
    Column("per_file_view_window_char_limit", Integer),
    Column("last_run_completion", BigInteger),
    Column("last_run_duration_ms", BigInteger),
    Column("last_stop_reason", Text),
    Column("stopped", Boolean, nullable=False),
    Column("paused_at", BigInteger),
    Column("paused_until", BigInteger),
    Column("budget", JSON),
    Column("facts", JSON(none_as_null=True)),
    Column("permits", JSON(none_as_null=True)),
    Column("quota", JSON(none_as_null=True)),
    Column("created_by_id", AuthorId),
    Column("last_updated_by_id", AuthorId),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Index(None, "organization_id", "created_at"),  # rows of the same microsecond are sorted by their ids when read
    Index(None, "organization_id", "name", "created_at"),
    Index("ix_agents_hidden", "organization_id", sqlite_where=_HIDDEN),
)

agent_tags = Table(
    "agent_tags",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", Text, primary_key=True),
    Index(None, "tag"),
    sqlite_with_rowid=False,
)

agent_secrets = Table(
    "agent_secrets",
    metadata,
    Column("id", Text, primary_key=True),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("description", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("agent_id", "key"),
)

# Parts of the agent file that an agent was imported from which this server cannot use yet, for the next export.
agent_file_parts = Table(
    "agent_file_parts",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("document", Text, nullable=False),
)

nodes = Table(
    "node",
    metadata,
    Column("id", Text, primary_key=True),
    Column("incarnation", BigInteger, nullable=False),
    Column("address", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

# Narrow on purpose: it is written by every journal commit.
agent_head = Table(
    "agent_head",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("owner", Text),
    Column("owner_incarnation", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
