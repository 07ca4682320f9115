"""Tools and who has them."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from kelpie.storage.tables.metadata import metadata

tools = Table(
    "tools",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("tool_type", Text, nullable=False),
    Column("description", Text),
    Column("source_type", Text),
    Column("source_code", Text),
    Column("json_schema", JSON, nullable=False),
    Column("args_json_schema", JSON),
    Column("tags", JSON, nullable=False),
    Column("return_char_limit", Integer, nullable=False),
    Column("pip_requirements", JSON),
    Column("npm_requirements", JSON),
    Column("default_requires_approval", Boolean),
    Column("enable_parallel_execution", Boolean),
    Column("metadata", JSON),
    Column("project_id", Text),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("sandbox", JSON, nullable=False),
    UniqueConstraint("organization_id", "name"),
    Index(None, "organization_id", "created_at", "id"),
)

# The tags once more, to be searched by; `storage.tool_search` keeps the two together.
tool_tags = Table(
    "tool_tags",
    metadata,
    Column("tool_id", Text, ForeignKey("tools.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", Text, primary_key=True),
)

agent_tools = Table(
    "agent_tools",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("tool_id", Text, ForeignKey("tools.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, nullable=False),
    Index(None, "tool_id"),
)
