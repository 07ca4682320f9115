"""Tools and the agents that have them, MCP servers, and sandbox configurations with their variables."""

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

# The tags once more, for the search; `storage.tools.search` keeps both in step.
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
    sqlite_with_rowid=False,
)

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
    Column("options", JSON, nullable=False, server_default="{}"),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("organization_id", "server_name"),
    Index(None, "organization_id", "created_at", "id"),
)

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

# MCP servers beside their records: the tools that each has, its OAuth state, and the tasks that run on it.

# Tools of servers: a tool may have another name here than on its server.
mcp_tools = Table(
    "mcp_tools",
    metadata,
    Column("tool_id", Text, ForeignKey("tools.id", ondelete="CASCADE"), primary_key=True),
    Column("server_id", Text, ForeignKey("mcp_servers.id", ondelete="CASCADE"), nullable=False),
    Column("remote_name", Text, nullable=False),
    Column("remote", JSON, nullable=False),  # the tool as its server lists it
    Index(None, "server_id", "remote_name"),
)

mcp_oauth = Table(
    "mcp_oauth",
    metadata,
    Column("id", Text, ForeignKey("mcp_servers.id", ondelete="CASCADE"), primary_key=True),
    Column("login", Text),  # the `state` of a login that waits for the person; not secret
    Column("tokens", Text),  # tokens and what belongs to them, encrypted
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "login"),
)

mcp_tasks = Table(
    "mcp_tasks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("server_id", Text, nullable=False),  # which may be deleted before the task ends
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("conversation_id", Text),
    Column("tool_name", Text, nullable=False),
    Column("task_id", Text, nullable=False),  # as the server knows it
    Column("status", Text, nullable=False),
    Column("status_message", Text),
    Column("questions", JSON, nullable=False),
    Column("poll_at", BigInteger),  # None: nothing more is asked
    Column("poll_ms", BigInteger, nullable=False),
    Column("failures", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("run_id", Text),  # the run that told the agent the result
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "poll_at"),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "agent_id"),
)
