"""MCP servers beside their records: the tools that each has, its OAuth state, and the tasks that run on it."""

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Table, Text

from kelpie.storage.tables.metadata import metadata

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
