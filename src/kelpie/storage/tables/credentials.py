"""API keys and access tokens. A secret is kept as its digest alone; both go with the user they belong to."""

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Table, Text

from kelpie.storage.tables.metadata import metadata

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("user_id", Text, ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("hint", Text, nullable=False),
    Column("scopes", JSON, nullable=False),
    Column("agent_ids", JSON(none_as_null=True)),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("last_used_at", BigInteger),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "user_id"),
)

access_tokens = Table(
    "access_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("user_id", Text, ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    Column("digest", Text, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("policy", JSON, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "user_id"),
    Index(None, "expires_at"),
)

# For finding the tokens of an agent; what a token may do stands in its policy.
access_token_agents = Table(
    "access_token_agents",
    metadata,
    Column("token_id", Text, ForeignKey("access_tokens.id", ondelete="CASCADE"), primary_key=True),
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Index(None, "agent_id"),
)
