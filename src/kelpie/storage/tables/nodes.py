"""Which servers are alive, and who owns an agent: the fence.

Every journal commit first moves `agent_head.version` under the epoch and owner it believes in.
"""

from sqlalchemy import BigInteger, Column, ForeignKey, Table, Text

from kelpie.storage.tables.metadata import metadata

nodes = Table(
    "node",
    metadata,
    Column("id", Text, primary_key=True),
    Column("incarnation", BigInteger, nullable=False),
    Column("address", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

# Narrow on purpose: it is written by every journal commit.
agent_head = Table(
    "agent_head",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("owner", Text),
    Column("owner_incarnation", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
)
