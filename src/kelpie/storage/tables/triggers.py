"""Triggers: schedules, their firings, and webhooks."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from kelpie.storage.tables.metadata import metadata

schedules = Table(
    "schedules",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text),
    Column("said", JSON, nullable=False),  # the messages and how they are sent
    Column("scheduled_at", BigInteger),  # of a schedule that fires once
    Column("recurrence", Text),  # a cron expression
    Column("timezone", Text, nullable=False),
    Column("missed", Text, nullable=False),
    Column("missed_max", Integer, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("next_at", BigInteger),  # None: nothing is due, or it is paused
    Column("last_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "next_at"),
    Index(None, "agent_id", "created_at", "id"),
    Index(None, "organization_id", "created_at", "id"),
)

firings = Table(
    "firings",
    metadata,
    Column("id", Text, primary_key=True),
    Column("schedule_id", Text, ForeignKey("schedules.id", ondelete="CASCADE"), nullable=False),
    Column("organization_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("manual", Boolean, nullable=False),
    Column("status", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("attempt_at", BigInteger),  # of the next attempt; None unless it waits for one
    Column("run_id", Text),
    Column("error", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("batch_id", Text),  # instead of a run, if each message has one
    UniqueConstraint("schedule_id", "due_at", "manual"),  # one firing for each time, whoever makes it
    Index(None, "attempt_at"),
    Index(None, "run_id"),
    Index(None, "status", "updated_at", "id"),
    Index(None, "schedule_id", "status", "due_at"),
    Index(None, "organization_id", "status", "created_at", "id"),
)

hooks = Table(
    "hooks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("conversation_id", Text),
    Column("name", Text, nullable=False),
    Column("token_hash", Text, nullable=False, unique=True),
    Column("instructions", Text),  # stand before the body in the message
    Column("enabled", Boolean, nullable=False),
    Column("last_used_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "agent_id", "created_at", "id"),
    Index(None, "organization_id", "created_at", "id"),
)
