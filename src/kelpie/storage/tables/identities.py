"""Identities, and the agents and blocks that are linked to them."""

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Table, Text, UniqueConstraint

from kelpie.storage.tables.metadata import metadata

# A missing project is the empty string, because it is part of the key.
identities = Table(
    "identities",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("identifier_key", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("identity_type", Text, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("organization_id", "identifier_key", "project_id"),
    Index(None, "organization_id", "created_at", "id"),
)

agent_identities = Table(
    "agent_identities",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("identity_id", Text, ForeignKey("identities.id", ondelete="CASCADE"), primary_key=True),
    Index(None, "identity_id"),
)

block_identities = Table(
    "block_identities",
    metadata,
    Column("block_id", Text, ForeignKey("blocks.id", ondelete="CASCADE"), primary_key=True),
    Column("identity_id", Text, ForeignKey("identities.id", ondelete="CASCADE"), primary_key=True),
    Index(None, "identity_id"),
)
