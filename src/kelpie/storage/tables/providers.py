"""Model providers that organizations add with their own keys."""

from sqlalchemy import BigInteger, Column, Index, Table, Text, UniqueConstraint

from kelpie.storage.tables.metadata import metadata

providers = Table(
    "providers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("provider_type", Text, nullable=False),
    Column("api_key", Text),  # encrypted
    Column("access_key", Text),  # encrypted
    Column("base_url", Text),
    Column("region", Text),
    Column("api_version", Text),
    Column("revision", BigInteger, nullable=False),
    Column("last_synced_at", BigInteger),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("organization_id", "name"),
    Index(None, "organization_id", "created_at", "id"),
)
