"""Sandbox configurations and their environment variables."""

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Table, Text, UniqueConstraint

from kelpie.storage.tables.metadata import metadata

sandbox_configs = Table(
    "sandbox_configs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("config", JSON, nullable=False),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("organization_id", "type"),
)

sandbox_variables = Table(
    "sandbox_variables",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("sandbox_config_id", Text, ForeignKey("sandbox_configs.id", ondelete="CASCADE"), nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("description", Text),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("sandbox_config_id", "key"),
    Index(None, "sandbox_config_id", "created_at", "id"),
)
