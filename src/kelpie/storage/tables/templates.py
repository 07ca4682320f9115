"""Templates of agents, their versions, and the variables that agents were made with.

A version with a number above 0 never changes; number 0 is the unsaved one.
"""

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from kelpie.storage.tables.metadata import metadata

templates = Table(
    "templates",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("latest", Integer, nullable=False),
    Column("base", Integer, nullable=False),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("organization_id", "name"),
    Index(None, "organization_id", "created_at", "id"),
)

template_versions = Table(
    "template_versions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("template_id", Text, ForeignKey("templates.id", ondelete="CASCADE"), nullable=False),
    Column("organization_id", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("message", Text),
    Column("variables", JSON, nullable=False),
    Column("document", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("checksum", BigInteger, nullable=False),
    Column("created_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("template_id", "number"),
)

# The memory variables of an agent that was made from a template: a migration fills them in again.
agent_variables = Table(
    "agent_variables",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("memory_variables", Text, nullable=False),
)
