"""Items of batches. The batch itself is a job."""

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Integer, Table, Text

from kelpie.storage.tables.metadata import metadata

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
