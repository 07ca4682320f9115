"""Policies of organisations for their agents, and the record of tool calls."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, Integer, Table, Text

from kelpie.storage.tables.metadata import metadata

# One row for an organisation once it has set a policy. It is never removed, so that a version is never used twice.
tool_policies = Table(
    "tool_policies",
    metadata,
    Column("organization_id", Text, ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True),
    Column("permits", JSON(none_as_null=True)),
    Column("quota", JSON(none_as_null=True)),
    Column("version", BigInteger, nullable=False),
    Column("updated_by_id", Text),
    Column("updated_at", BigInteger, nullable=False),
)

# One row for every answered call; it is deleted with its run, and a call that a client made directly after a while.
tool_calls = Table(
    "tool_calls",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("organization_id", Text, nullable=False),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE")),
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE")),
    Column("step_id", Text),
    Column("call_id", Text),
    Column("tool_id", Text),
    Column("name", Text, nullable=False),
    Column("kind", Text),
    Column("outcome", Text, nullable=False),
    Column("reason", Text),
    Column("counted", Boolean, nullable=False),
    Column("duration_us", BigInteger, nullable=False),
    Column("cpu_us", BigInteger, nullable=False),
    Column("memory_peak_bytes", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index(None, "run_id"),
    Index(None, "tool_id"),
    Index(None, "agent_id", "created_at"),
    Index(None, "organization_id", "created_at"),
)
