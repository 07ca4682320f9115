"""Jobs: long work that is not a turn, such as a batch, whose items are here too. A turn's record is a run."""

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

batch_items = Table(
    "batch_items",
    metadata,
    Column("batch_id", Text, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("conversation_id", Text),
    Column("run_id", Text),
    Column("error", Text),
    Column("given", JSON(none_as_null=True)),  # the input of its run, until there is one
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "batch_id", "status", "place"),
    Index(None, "run_id"),
)
