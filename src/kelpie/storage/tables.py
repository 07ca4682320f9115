"""The schema, once, for every dialect. Times are integers (microseconds UTC); JSON columns hold what nobody filters on.

The fence lives here: every journal commit first moves `agent_head.version` under the epoch and owner it believes in,
and `journal` has one row per commit of a turn, so a commit whose outcome is unknown can be looked up.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

from kelpie.search import tables as search

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

nodes = Table(
    "node",
    metadata,
    Column("id", Text, primary_key=True),
    Column("incarnation", BigInteger, nullable=False),
    Column("address", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

agents = Table(
    "agents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("agent_type", Text, nullable=False),
    Column("system", Text, nullable=False),
    Column("model", JSON, nullable=False),
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
    Column("compaction_settings", JSON),
    Column("response_format", JSON),
    Column("message_buffer_autoclear", Boolean, nullable=False),
    Column("enable_sleeptime", Boolean),
    Column("max_files_open", Integer),
    Column("per_file_view_window_char_limit", Integer),
    Column("last_run_completion", BigInteger),
    Column("last_run_duration_ms", BigInteger),
    Column("last_stop_reason", Text),
    Column("stopped", Boolean, nullable=False),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "organization_id", "name"),
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
)

agent_tags = Table(
    "agent_tags",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", Text, primary_key=True),
    Index(None, "tag"),
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
    Column("metadata", JSON, nullable=False),
    Column("hidden", Boolean),
    Column("project_id", Text),
    Column("template_name", Text),
    Column("is_template", Boolean, nullable=False),
    Column("template_id", Text),
    Column("base_template_id", Text),
    Column("deployment_id", Text),
    Column("entity_id", Text),
    Column("preserve_on_migration", Boolean, nullable=False),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
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
)

tools = Table(
    "tools",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("tool_type", Text, nullable=False),
    Column("description", Text),
    Column("source_type", Text),
    Column("source_code", Text),
    Column("json_schema", JSON, nullable=False),
    Column("args_json_schema", JSON),
    Column("tags", JSON, nullable=False),
    Column("return_char_limit", Integer, nullable=False),
    Column("pip_requirements", JSON),
    Column("npm_requirements", JSON),
    Column("default_requires_approval", Boolean),
    Column("enable_parallel_execution", Boolean),
    Column("metadata", JSON),
    Column("project_id", Text),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    UniqueConstraint("organization_id", "name"),
    Index(None, "organization_id", "created_at", "id"),
)

agent_tools = Table(
    "agent_tools",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("tool_id", Text, ForeignKey("tools.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, nullable=False),
    Index(None, "tool_id"),
)

messages = Table(
    "messages",
    metadata,
    Column("id", Text, primary_key=True),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("conversation_id", Text),
    Column("role", Text, nullable=False),
    Column("content", JSON, nullable=False),
    Column("tool_calls", JSON, nullable=False),
    Column("tool_returns", JSON, nullable=False),
    Column("name", Text),
    Column("otid", Text),
    Column("sender_id", Text),
    Column("group_id", Text),
    Column("run_id", Text),
    Column("step_id", Text),
    Column("is_err", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("agent_id", "seq"),
    Index(None, "run_id"),
    Index(None, "step_id"),
)

# What the model sees, in order. The default conversation is the empty string, because it is part of the key.
context = Table(
    "context",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("conversation_id", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("message_id", Text, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("organization_id", Text, nullable=False),
    Column("conversation_id", Text),
    Column("status", Text, nullable=False),
    Column("stop_reason", Text),
    Column("background", Boolean, nullable=False),
    Column("input", JSON, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("request_config", JSON, nullable=False),
    Column("callback_url", Text),
    Column("usage", JSON, nullable=False),
    Column("step_count", Integer, nullable=False),
    Column("ttft_ns", BigInteger),
    Column("total_duration_ns", BigInteger),
    Column("owner", Text, nullable=False),
    Column("owner_incarnation", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("completed_at", BigInteger),
    Index(None, "agent_id", "created_at", "id"),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "status"),
)

steps = Table(
    "steps",
    metadata,
    Column("id", Text, primary_key=True),
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("organization_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("stop_reason", Text),
    Column("provider_name", Text),
    Column("provider_category", Text),
    Column("model", Text),
    Column("model_handle", Text),
    Column("model_endpoint", Text),
    Column("context_window_limit", BigInteger),
    Column("usage", JSON, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("feedback", Text),
    Column("error", JSON),
    Column("llm_ns", BigInteger),
    Column("tool_ns", BigInteger),
    Column("step_ns", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Index(None, "run_id"),
    Index(None, "organization_id", "created_at", "id"),
)

journal = Table(
    "journal",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("turn_id", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("agent_id", "turn_id", "step"),
)

archives = Table(
    "archives",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("embedding", Text),
    Column("metadata", JSON),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
)

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
    Column("tags", JSON, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "archive_id", "created_at", "id"),
)

search.search_items.to_metadata(metadata)
