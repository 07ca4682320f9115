"""The history of agents: messages, the context of the model, runs, steps, the journal, and jobs.

`journal` has one row per commit of a turn, so a commit whose outcome is unknown can be looked up.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    column,
)

from kelpie.storage.rows.checksums import ChecksummedJson
from kelpie.storage.rows.standard_texts import MessageContent
from kelpie.storage.tables.metadata import metadata

# Most messages belong to no conversation and no group and answer no pending call; these indexes hold the others.
_THREADED = column("conversation_id").is_not(None)
_GROUPED = column("group_id").is_not(None)
_DUE = column("callback_due_at").is_not(None)
_ANSWERING = column("answers").is_not(None)

messages = Table(
    "messages",
    metadata,
    Column("id", Text, primary_key=True),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("conversation_id", Text),
    Column("role", Text, nullable=False),
    Column("content", MessageContent, nullable=False),
    Column("tool_calls", ChecksummedJson, nullable=False),
    Column("tool_returns", ChecksummedJson, nullable=False),
    Column("name", Text),
    Column("otid", Text),
    Column("sender_id", Text),
    Column("group_id", Text),
    Column("run_id", Text),
    Column("step_id", Text),
    Column("is_err", Boolean, nullable=False),
    Column("answers", ChecksummedJson(none_as_null=True)),
    Column("created_at", BigInteger, nullable=False),
    Column("checksum", BigInteger),  # of what was said and done; what does not match is not shown
    UniqueConstraint("agent_id", "seq"),
    Index(None, "run_id"),
    Index(None, "step_id"),
    Index(None, "created_at"),
    Index(None, "conversation_id", "seq", sqlite_where=_THREADED),
    Index(None, "group_id", sqlite_where=_GROUPED),
    Index("ix_messages_answering", "agent_id", "seq", sqlite_where=_ANSWERING),
)

# The context of the model, in order. The default conversation is the empty string, because it is part of the key.
context = Table(
    "context",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("conversation_id", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("message_id", Text, nullable=False),
    sqlite_with_rowid=False,
)

# The calls that wait for a client's answer, one row for each conversation whose last turn ended with them. `runs` are
# those of the turn so far, and `answers` those that arrived before all of them had.
approvals = Table(
    "approvals",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("conversation_id", Text, primary_key=True),
    Column("message_id", Text, ForeignKey("messages.id", ondelete="CASCADE"), nullable=False),
    Column("runs", JSON, nullable=False),
    Column("answers", JSON, nullable=False),
    Column("requested_at", BigInteger, nullable=False),
    Index(None, "message_id"),
    Index(None, "requested_at"),
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
    Column("stop_detail", Text),
    Column("background", Boolean, nullable=False),
    Column("input", JSON, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("request_config", JSON, nullable=False),
    Column("callback_url", Text),
    Column("callback_due_at", BigInteger),  # time of the next attempt; null when there is nothing to send
    Column("callback_attempts", Integer, nullable=False),
    Column("callback_sent_at", BigInteger),
    Column("callback_status_code", Integer),
    Column("callback_error", Text),
    Column("usage", JSON, nullable=False),
    Column("step_count", Integer, nullable=False),
    Column("taken_up", Integer, nullable=False),  # number of times a lane started it
    Column("ttft_ns", BigInteger),
    Column("total_duration_ns", BigInteger),
    Column("owner", Text, nullable=False),
    Column("owner_incarnation", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("completed_at", BigInteger),
    Index(None, "agent_id", "created_at", "id"),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "status"),
    Index(None, "callback_due_at", sqlite_where=_DUE),
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
    Column("transaction_id", Text),
    Column("project_id", Text),
    Column("error", JSON),
    Column("llm_ns", BigInteger),
    Column("tool_ns", BigInteger),
    Column("step_ns", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Index(None, "run_id"),
    Index(None, "agent_id", "created_at"),
    Index(None, "organization_id", "created_at", "id"),
)

# The tags of steps once more, to be searched; a step shows its own.
step_tags = Table(
    "step_tags",
    metadata,
    Column("step_id", Text, ForeignKey("steps.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", Text, primary_key=True),
    Index(None, "tag"),
)

# Request to the provider and its response, byte for byte up to the size limit. `number` only ever grows, so
# the oldest are found without looking at any.
step_traces = Table(
    "step_traces",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("step_id", Text, ForeignKey("steps.id", ondelete="CASCADE"), nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("request_bytes", BigInteger, nullable=False),
    Column("response", LargeBinary),
    Column("response_bytes", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("step_id"),
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

# Long work that is not a turn, such as reading files or a batch. A turn's record is a run.
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
