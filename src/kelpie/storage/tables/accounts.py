"""Organizations, their users, API keys, access tokens, sessions in browsers and model providers.

Rows elsewhere name their organization without a foreign key: its API refuses to delete an organization that still
has rows. A secret is stored as its digest only; keys and tokens are deleted with their user.
"""

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, Table, Text, UniqueConstraint

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
    Column("project_ids", JSON(none_as_null=True)),
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

# Of people who signed in to the dashboard, with a key or with the server's password.
sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("key_id", Text, ForeignKey("api_keys.id", ondelete="CASCADE")),  # none: the password
    Column("digest", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index(None, "key_id"),
    Index(None, "created_at", "id"),
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

# Model providers that organizations add with their own keys.
providers = Table(
    "providers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("provider_type", Text, nullable=False),
    Column("api_key", Text),  # encrypted
    Column("access_key", Text),  # encrypted
    Column("base_url", Text),
    Column("region", Text),
    Column("api_version", Text),
    Column("revision", BigInteger, nullable=False),
    Column("last_synced_at", BigInteger),
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("organization_id", "name"),
    Index(None, "organization_id", "created_at", "id"),
)
