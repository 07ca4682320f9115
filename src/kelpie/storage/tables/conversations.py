"""Conversations: further threads of an agent beside its default one.

Deleting one leaves its row, hidden, because the agent's history still names it. `conversation_shares` holds the
messages that a fork shares: the rows themselves belong to the original thread. `conversation_blocks` holds copies of
blocks that only this thread sees.
"""

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, Integer, Table, Text

from kelpie.storage.tables.metadata import metadata

conversations = Table(
    "conversations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("summary", Text),
    Column("description", Text),
    Column("model", Text),
    Column("model_settings", JSON),
    Column("context_window_limit", BigInteger),
    Column("hidden", Boolean, nullable=False),
    Column("archived_at", BigInteger),
    Column("last_message_at", BigInteger),
    Column("last_run_completion", BigInteger),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("deleted_at", BigInteger),
    Column("version", BigInteger, nullable=False),  # of what a turn in it goes by
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "agent_id", "created_at", "id"),
)

conversation_blocks = Table(
    "conversation_blocks",
    metadata,
    Column("conversation_id", Text, ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("label", Text, primary_key=True),
    Column("block_id", Text, ForeignKey("blocks.id", ondelete="CASCADE"), nullable=False),
    Index(None, "block_id"),
)

conversation_shares = Table(
    "conversation_shares",
    metadata,
    Column("conversation_id", Text, ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("message_id", Text, ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True),
    Index(None, "message_id"),
)

# Turns of clients that send their history again with every request; see `core/conversations/client_histories.py`.
# `request` is of a turn that the client may read again by its id.
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
