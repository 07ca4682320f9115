"""Working memory, facts with their sources, entities, and the progress of fact extraction.

Working memory has entries by agent and key, and the number that the next write of an agent gets.
"""

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, Table, Text, column

from kelpie.storage.tables.metadata import metadata

_ENDING = column("expires_at").is_not(None)  # most entries stay; the indexes hold the others

working_memory = Table(
    "working_memory",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),  # JSON
    Column("bytes", Integer, nullable=False),  # of key and value
    Column("version", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Index(
        "ix_working_memory_of_agent_ending",
        "agent_id",
        "expires_at",
        sqlite_where=_ENDING,
    ),
    Index("ix_working_memory_ending", "expires_at", sqlite_where=_ENDING),
)

# Writers of one agent lock this row, so that together they keep to the limits.
working_memory_heads = Table(
    "working_memory_heads",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("version", BigInteger, nullable=False),
)

# The names of a fact's entity are stored twice: as they were written, and as they are compared.
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

# The messages that state a fact; one that was deleted since stays listed.
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

# One row for each agent that facts are extracted for; agents without one are never read.
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
