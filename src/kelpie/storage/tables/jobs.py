"""Jobs: long work that is not a turn, such as reading files or a batch. A turn's record is a run."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, Integer, Table, Text

from kelpie.storage.tables.metadata import metadata

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("job_type", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("stop_reason", Text),
    Column("background", Boolean),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="SET NULL")),
    Column("source_id", Text),
    Column("metadata", JSON, nullable=False),
    Column("callback_url", Text),
    Column("callback_sent_at", BigInteger),
    Column("callback_status_code", Integer),
    Column("callback_error", Text),
    Column("ttft_ns", BigInteger),
    Column("total_duration_ns", BigInteger),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("completed_at", BigInteger),
    Column("callback_due_at", BigInteger),  # of the next attempt
    Column("callback_attempts", Integer, nullable=False, server_default="0"),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "agent_id"),
    Index(None, "job_type", "status", "id"),
    Index(None, "callback_due_at"),
)
