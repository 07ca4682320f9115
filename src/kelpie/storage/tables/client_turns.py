"""Turns of clients that send their history again with every request; see `core/conversations/client_histories.py`.

`request` is of a turn that the client may read again by its id.
"""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, Table, Text

from kelpie.storage.tables.metadata import metadata

client_turns = Table(
    "client_turns",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("conversation_id", Text, ForeignKey("conversations.id", ondelete="CASCADE")),  # none: the default one
    Column("fingerprint", Text, nullable=False),
    Column("known", Integer, nullable=False),
    Column("idempotency_key", Text),
    Column("call_id", Text),
    Column("continued", Boolean, nullable=False),
    Column("repeated", Boolean, nullable=False),
    Column("request", Text),
    Column("created_at", BigInteger, nullable=False),
    Index(None, "agent_id", "fingerprint"),
    Index(None, "conversation_id"),
    Index(None, "created_at"),
)
