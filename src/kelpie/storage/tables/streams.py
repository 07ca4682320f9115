"""Events of background runs, stored for clients that resume their streams, and the client ids of sends."""

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Integer, Table, Text

from kelpie.storage.tables.metadata import metadata

# One row per batch. `segment` and `upto` say how many events of one activation of the turn are stored, so that a batch
# which is written again adds nothing twice.
run_events = Table(
    "run_events",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("segment", Text, nullable=False),
    Column("upto", Integer, nullable=False),
    Column("events", JSON, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index(None, "created_at"),
)

# The ids that clients gave their messages, by the run that answers them; a repeated send is found by them.
run_otids = Table(
    "run_otids",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("otid", Text, primary_key=True),
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Index(None, "run_id"),
)
