"""What agents have learnt: facts with where they come from, the things they are about, and how far extraction is."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, Table, Text

from kelpie.storage.tables.metadata import metadata

# The names of what a fact is about stand here twice: as they were said, and as they are compared.
facts = Table(
    "facts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("subject", Text, nullable=False),
    Column("subject_key", Text, nullable=False),
    Column("attribute", Text, nullable=False),
    Column("attribute_key", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("value_key", Text, nullable=False),
    Column("statement", Text, nullable=False),
    Column("exclusive", Boolean, nullable=False),
    Column("confidence", Float, nullable=False),
    Column("valid_from", BigInteger, nullable=False),
    Column("valid_until", BigInteger),
    Column("recorded_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
    Column("seen", Integer, nullable=False),
    Column("supersedes", Text),
    Column("superseded_by", Text),
    Column("link", Text),
    Index(None, "agent_id", "subject_key", "attribute_key"),
    Index(None, "agent_id", "recorded_at", "id"),
)

# The messages in which a fact was said; one that was deleted since stays named.
fact_sources = Table(
    "fact_sources",
    metadata,
    Column("fact_id", Text, ForeignKey("facts.id", ondelete="CASCADE"), primary_key=True),
    Column("message_id", Text, primary_key=True),
)

entities = Table(
    "entities",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("name_key", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("aliases", JSON, nullable=False),
    Column("first_seen_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)

# One row for each agent that facts are extracted for; agents without one are never looked at.
fact_states = Table(
    "fact_states",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("every_turns", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("through", BigInteger, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("not_before", BigInteger, nullable=False),
    Column("extractions", BigInteger, nullable=False),
    Column("skipped", BigInteger, nullable=False),
    Column("last_at", BigInteger),
    Column("last_error", Text),
)
