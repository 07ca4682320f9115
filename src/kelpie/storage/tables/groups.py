"""Groups of agents: the members in order, and the blocks they share."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, Table, Text

from kelpie.storage.tables.metadata import metadata

# A group is useless without the agent that manages it, so it is deleted with it.
groups = Table(
    "groups",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("manager_type", Text, nullable=False),
    Column("manager_agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE")),
    Column("description", Text, nullable=False),
    Column("termination_token", Text),
    Column("max_turns", BigInteger),
    Column("sleeptime_agent_frequency", BigInteger),
    Column("turns_counter", BigInteger),
    Column("last_processed_message_id", Text),
    Column("max_message_buffer_length", BigInteger),
    Column("min_message_buffer_length", BigInteger),
    Column("project_id", Text),
    Column("template_id", Text),
    Column("base_template_id", Text),
    Column("deployment_id", Text),
    Column("hidden", Boolean),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "manager_agent_id"),
)

group_agents = Table(
    "group_agents",
    metadata,
    Column("group_id", Text, ForeignKey("groups.id", ondelete="CASCADE"), primary_key=True),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, nullable=False),
    Index(None, "agent_id"),
)

group_blocks = Table(
    "group_blocks",
    metadata,
    Column("group_id", Text, ForeignKey("groups.id", ondelete="CASCADE"), primary_key=True),
    Column("block_id", Text, ForeignKey("blocks.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, nullable=False),
    Index(None, "block_id"),
)
