"""Organisations and their users. Rows elsewhere name their organisation without a foreign key: removing one is a
matter for its door, which refuses while anything is left in it."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Table, Text

from kelpie.storage.tables.metadata import metadata

organizations = Table(
    "organizations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("privileged_tools", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "created_at", "id"),
)

users = Table(
    "users",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, ForeignKey("organizations.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", BigInteger),  # the user that comes with Kelpie has none
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "created_at", "id"),
    Index(None, "organization_id"),
)
