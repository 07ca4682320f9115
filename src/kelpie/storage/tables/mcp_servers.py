"""MCP servers as they were registered."""

from sqlalchemy import JSON, BigInteger, Column, Index, Table, Text, UniqueConstraint

from kelpie.storage.tables.metadata import metadata

mcp_servers = Table(
    "mcp_servers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("server_name", Text, nullable=False),
    Column("server_type", Text, nullable=False),
    Column("command", Text),
    Column("args", JSON, nullable=False),
    Column("env", JSON(none_as_null=True)),
    Column("server_url", Text),
    Column("auth_header", Text),
    Column("token", Text),
    Column("custom_headers", JSON(none_as_null=True)),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("organization_id", "server_name"),
    Index(None, "organization_id", "created_at", "id"),
)
