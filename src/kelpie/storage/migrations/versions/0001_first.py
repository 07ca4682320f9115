"""The first schema: everything in `tables` at the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("agent_type", sa.Text(), nullable=False),
        sa.Column("system", sa.Text(), nullable=False),
        sa.Column("model", sa.JSON(), nullable=False),
        sa.Column("embedding", sa.Text(), nullable=True),
        sa.Column("embedding_chunk_size", sa.Integer(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=True),
        sa.Column("tool_rules", sa.JSON(), nullable=False),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("hidden", sa.Boolean(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("template_id", sa.Text(), nullable=True),
        sa.Column("base_template_id", sa.Text(), nullable=True),
        sa.Column("deployment_id", sa.Text(), nullable=True),
        sa.Column("entity_id", sa.Text(), nullable=True),
        sa.Column("compaction_settings", sa.JSON(), nullable=True),
        sa.Column("response_format", sa.JSON(), nullable=True),
        sa.Column("message_buffer_autoclear", sa.Boolean(), nullable=False),
        sa.Column("enable_sleeptime", sa.Boolean(), nullable=True),
        sa.Column("max_files_open", sa.Integer(), nullable=True),
        sa.Column("per_file_view_window_char_limit", sa.Integer(), nullable=True),
        sa.Column("last_run_completion", sa.BigInteger(), nullable=True),
        sa.Column("last_run_duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_stop_reason", sa.Text(), nullable=True),
        sa.Column("stopped", sa.Boolean(), nullable=False),
        sa.Column("paused_at", sa.BigInteger(), nullable=True),
        sa.Column("paused_until", sa.BigInteger(), nullable=True),
        sa.Column("budget", sa.JSON(), nullable=True),
        sa.Column("facts", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("permits", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("quota", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
    )
    op.create_index(
        op.f("ix_agents_organization_id_created_at_id"), "agents", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_agents_organization_id_name"), "agents", ["organization_id", "name"], unique=False)
    op.create_table(
        "archives",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("embedding", sa.Text(), nullable=True),
        sa.Column("embedding_chunk_size", sa.Integer(), nullable=False),
        sa.Column("removed", sa.Boolean(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=True),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_archives")),
    )
    op.create_index(
        op.f("ix_archives_organization_id_created_at_id"),
        "archives",
        ["organization_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(op.f("ix_archives_removed"), "archives", ["removed"], unique=False)
    op.create_table(
        "blocks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("limit", sa.BigInteger(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("hidden", sa.Boolean(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("template_name", sa.Text(), nullable=True),
        sa.Column("is_template", sa.Boolean(), nullable=False),
        sa.Column("template_id", sa.Text(), nullable=True),
        sa.Column("base_template_id", sa.Text(), nullable=True),
        sa.Column("deployment_id", sa.Text(), nullable=True),
        sa.Column("entity_id", sa.Text(), nullable=True),
        sa.Column("preserve_on_migration", sa.Boolean(), nullable=False),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blocks")),
    )
    op.create_index(
        op.f("ix_blocks_organization_id_created_at_id"), "blocks", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_blocks_organization_id_label"), "blocks", ["organization_id", "label"], unique=False)
    op.create_table(
        "identities",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("identifier_key", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("identity_type", sa.Text(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identities")),
        sa.UniqueConstraint(
            "organization_id",
            "identifier_key",
            "project_id",
            name=op.f("uq_identities_organization_id_identifier_key_project_id"),
        ),
    )
    op.create_index(
        op.f("ix_identities_organization_id_created_at_id"),
        "identities",
        ["organization_id", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "mcp_servers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("server_name", sa.Text(), nullable=False),
        sa.Column("server_type", sa.Text(), nullable=False),
        sa.Column("command", sa.Text(), nullable=True),
        sa.Column("args", sa.JSON(), nullable=False),
        sa.Column("env", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("server_url", sa.Text(), nullable=True),
        sa.Column("auth_header", sa.Text(), nullable=True),
        sa.Column("token", sa.Text(), nullable=True),
        sa.Column("custom_headers", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mcp_servers")),
        sa.UniqueConstraint("organization_id", "server_name", name=op.f("uq_mcp_servers_organization_id_server_name")),
    )
    op.create_index(
        op.f("ix_mcp_servers_organization_id_created_at_id"),
        "mcp_servers",
        ["organization_id", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "node",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node")),
    )
    op.create_table(
        "organizations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("privileged_tools", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organizations")),
    )
    op.create_index(op.f("ix_organizations_created_at_id"), "organizations", ["created_at", "id"], unique=False)
    op.create_table(
        "sandbox_configs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sandbox_configs")),
        sa.UniqueConstraint("organization_id", "type", name=op.f("uq_sandbox_configs_organization_id_type")),
    )
    op.create_table(
        "search_items",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("loose", sa.Boolean(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=False),
        sa.Column("words", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_search_items")),
        sa.UniqueConstraint("kind", "item_id", name="uq_search_items_kind_item_id"),
    )
    op.create_index("ix_search_items_kind_model", "search_items", ["kind", "model"], unique=False)
    op.create_index("ix_search_items_kind_scope", "search_items", ["kind", "scope", "loose", "checksum"], unique=False)
    op.create_table(
        "search_postings",
        sa.Column("place", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("postings", sa.LargeBinary(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("place", name=op.f("pk_search_postings")),
    )
    op.create_table(
        "search_removed",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "scope", name=op.f("pk_search_removed")),
    )
    op.create_table(
        "search_scopes",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("rewrites", sa.BigInteger(), nullable=False),
        sa.Column("mixed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "scope", name=op.f("pk_search_scopes")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "search_segments",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("gone", sa.Integer(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("bits", sa.Integer(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=False),
        sa.Column("members", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_search_segments")),
    )
    op.create_index("ix_search_segments_kind_scope", "search_segments", ["kind", "scope"], unique=False)
    op.create_table(
        "search_sketches",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("item", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("sketch", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "scope", "model", "item", name=op.f("pk_search_sketches")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_search_sketches_item", "search_sketches", ["item"], unique=False)
    op.create_table(
        "search_unordered",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "scope", name=op.f("pk_search_unordered")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "search_vectors",
        sa.Column("item", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("item", "model", name=op.f("pk_search_vectors")),
    )
    op.create_table(
        "tools",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tool_type", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("source_type", sa.Text(), nullable=True),
        sa.Column("source_code", sa.Text(), nullable=True),
        sa.Column("json_schema", sa.JSON(), nullable=False),
        sa.Column("args_json_schema", sa.JSON(), nullable=True),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("return_char_limit", sa.Integer(), nullable=False),
        sa.Column("pip_requirements", sa.JSON(), nullable=True),
        sa.Column("npm_requirements", sa.JSON(), nullable=True),
        sa.Column("default_requires_approval", sa.Boolean(), nullable=True),
        sa.Column("enable_parallel_execution", sa.Boolean(), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("sandbox", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tools")),
        sa.UniqueConstraint("organization_id", "name", name=op.f("uq_tools_organization_id_name")),
    )
    op.create_index(
        op.f("ix_tools_organization_id_created_at_id"), "tools", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_table(
        "agent_archives",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("archive_id", sa.Text(), nullable=False),
        sa.Column("is_owner", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_archives_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["archive_id"], ["archives.id"], name=op.f("fk_agent_archives_archive_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_agent_archives")),
    )
    op.create_index(op.f("ix_agent_archives_archive_id"), "agent_archives", ["archive_id"], unique=False)
    op.create_table(
        "agent_blocks",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("block_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_agent_blocks_agent_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["block_id"], ["blocks.id"], name=op.f("fk_agent_blocks_block_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("agent_id", "label", name=op.f("pk_agent_blocks")),
    )
    op.create_index(op.f("ix_agent_blocks_block_id"), "agent_blocks", ["block_id"], unique=False)
    op.create_table(
        "agent_head",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("owner_incarnation", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_agent_head_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_agent_head")),
    )
    op.create_table(
        "agent_identities",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("identity_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_identities_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["identity_id"], ["identities.id"], name=op.f("fk_agent_identities_identity_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "identity_id", name=op.f("pk_agent_identities")),
    )
    op.create_index(op.f("ix_agent_identities_identity_id"), "agent_identities", ["identity_id"], unique=False)
    op.create_table(
        "agent_secrets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_secrets_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_secrets")),
        sa.UniqueConstraint("agent_id", "key", name=op.f("uq_agent_secrets_agent_id_key")),
    )
    op.create_table(
        "agent_tags",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_agent_tags_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("agent_id", "tag", name=op.f("pk_agent_tags")),
    )
    op.create_index(op.f("ix_agent_tags_tag"), "agent_tags", ["tag"], unique=False)
    op.create_table(
        "agent_tools",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("tool_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_agent_tools_agent_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["tool_id"], ["tools.id"], name=op.f("fk_agent_tools_tool_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("agent_id", "tool_id", name=op.f("pk_agent_tools")),
    )
    op.create_index(op.f("ix_agent_tools_tool_id"), "agent_tools", ["tool_id"], unique=False)
    op.create_table(
        "block_history",
        sa.Column("block_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("author_id", sa.Text(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("step_id", sa.Text(), nullable=True),
        sa.Column("tool", sa.Text(), nullable=True),
        sa.Column("restores", sa.BigInteger(), nullable=True),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.Column("value_checksum", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["block_id"], ["blocks.id"], name=op.f("fk_block_history_block_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("block_id", "version", name=op.f("pk_block_history")),
    )
    op.create_table(
        "block_identities",
        sa.Column("block_id", sa.Text(), nullable=False),
        sa.Column("identity_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["block_id"], ["blocks.id"], name=op.f("fk_block_identities_block_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["identity_id"], ["identities.id"], name=op.f("fk_block_identities_identity_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("block_id", "identity_id", name=op.f("pk_block_identities")),
    )
    op.create_index(op.f("ix_block_identities_identity_id"), "block_identities", ["identity_id"], unique=False)
    op.create_table(
        "block_tags",
        sa.Column("block_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["block_id"], ["blocks.id"], name=op.f("fk_block_tags_block_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("block_id", "tag", name=op.f("pk_block_tags")),
    )
    op.create_index(op.f("ix_block_tags_tag"), "block_tags", ["tag"], unique=False)
    op.create_table(
        "context",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_context_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("agent_id", "conversation_id", "position", name=op.f("pk_context")),
    )
    op.create_table(
        "conversations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("model_settings", sa.JSON(), nullable=True),
        sa.Column("context_window_limit", sa.BigInteger(), nullable=True),
        sa.Column("hidden", sa.Boolean(), nullable=False),
        sa.Column("archived_at", sa.BigInteger(), nullable=True),
        sa.Column("last_message_at", sa.BigInteger(), nullable=True),
        sa.Column("last_run_completion", sa.BigInteger(), nullable=True),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_conversations_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_conversations")),
    )
    op.create_index(
        op.f("ix_conversations_agent_id_created_at_id"), "conversations", ["agent_id", "created_at", "id"], unique=False
    )
    op.create_index(
        op.f("ix_conversations_organization_id_created_at_id"),
        "conversations",
        ["organization_id", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "entities",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("name_key", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("aliases", sa.JSON(), nullable=False),
        sa.Column("first_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_entities_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("agent_id", "name_key", name=op.f("pk_entities")),
    )
    op.create_table(
        "fact_states",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("every_turns", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("through", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=False),
        sa.Column("extractions", sa.BigInteger(), nullable=False),
        sa.Column("skipped", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_fact_states_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_fact_states")),
    )
    op.create_table(
        "facts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("subject_key", sa.Text(), nullable=False),
        sa.Column("attribute", sa.Text(), nullable=False),
        sa.Column("attribute_key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("value_key", sa.Text(), nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("exclusive", sa.Boolean(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("valid_from", sa.BigInteger(), nullable=False),
        sa.Column("valid_until", sa.BigInteger(), nullable=True),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("seen", sa.Integer(), nullable=False),
        sa.Column("supersedes", sa.Text(), nullable=True),
        sa.Column("superseded_by", sa.Text(), nullable=True),
        sa.Column("link", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_facts_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_facts")),
    )
    op.create_index(op.f("ix_facts_agent_id_recorded_at_id"), "facts", ["agent_id", "recorded_at", "id"], unique=False)
    op.create_index(
        op.f("ix_facts_agent_id_subject_key_attribute_key"),
        "facts",
        ["agent_id", "subject_key", "attribute_key"],
        unique=False,
    )
    op.create_table(
        "groups",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("manager_type", sa.Text(), nullable=False),
        sa.Column("manager_agent_id", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("termination_token", sa.Text(), nullable=True),
        sa.Column("max_turns", sa.BigInteger(), nullable=True),
        sa.Column("sleeptime_agent_frequency", sa.BigInteger(), nullable=True),
        sa.Column("turns_counter", sa.BigInteger(), nullable=True),
        sa.Column("last_processed_message_id", sa.Text(), nullable=True),
        sa.Column("max_message_buffer_length", sa.BigInteger(), nullable=True),
        sa.Column("min_message_buffer_length", sa.BigInteger(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("template_id", sa.Text(), nullable=True),
        sa.Column("base_template_id", sa.Text(), nullable=True),
        sa.Column("deployment_id", sa.Text(), nullable=True),
        sa.Column("hidden", sa.Boolean(), nullable=True),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["manager_agent_id"], ["agents.id"], name=op.f("fk_groups_manager_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_groups")),
    )
    op.create_index(op.f("ix_groups_manager_agent_id"), "groups", ["manager_agent_id"], unique=False)
    op.create_index(
        op.f("ix_groups_organization_id_created_at_id"), "groups", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("job_type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("background", sa.Boolean(), nullable=True),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("source_id", sa.Text(), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("callback_url", sa.Text(), nullable=True),
        sa.Column("callback_sent_at", sa.BigInteger(), nullable=True),
        sa.Column("callback_status_code", sa.Integer(), nullable=True),
        sa.Column("callback_error", sa.Text(), nullable=True),
        sa.Column("ttft_ns", sa.BigInteger(), nullable=True),
        sa.Column("total_duration_ns", sa.BigInteger(), nullable=True),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_jobs_agent_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_agent_id"), "jobs", ["agent_id"], unique=False)
    op.create_index(
        op.f("ix_jobs_organization_id_created_at_id"), "jobs", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_table(
        "journal",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_journal_agent_id"), ondelete="CASCADE"),
        sa.UniqueConstraint("agent_id", "turn_id", "step", name=op.f("uq_journal_agent_id_turn_id_step")),
    )
    op.create_table(
        "messages",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("tool_calls", sa.JSON(), nullable=False),
        sa.Column("tool_returns", sa.JSON(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("otid", sa.Text(), nullable=True),
        sa.Column("sender_id", sa.Text(), nullable=True),
        sa.Column("group_id", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("step_id", sa.Text(), nullable=True),
        sa.Column("is_err", sa.Boolean(), nullable=False),
        sa.Column("answers", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_messages_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
        sa.UniqueConstraint("agent_id", "seq", name=op.f("uq_messages_agent_id_seq")),
    )
    op.create_index(
        "ix_messages_answering",
        "messages",
        ["agent_id", "seq"],
        unique=False,
        sqlite_where=sa.text("answers IS NOT NULL"),
        postgresql_where=sa.text("answers IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_messages_conversation_id_seq"),
        "messages",
        ["conversation_id", "seq"],
        unique=False,
        sqlite_where=sa.text("conversation_id IS NOT NULL"),
        postgresql_where=sa.text("conversation_id IS NOT NULL"),
    )
    op.create_index(op.f("ix_messages_created_at"), "messages", ["created_at"], unique=False)
    op.create_index(
        op.f("ix_messages_group_id"),
        "messages",
        ["group_id"],
        unique=False,
        sqlite_where=sa.text("group_id IS NOT NULL"),
        postgresql_where=sa.text("group_id IS NOT NULL"),
    )
    op.create_index(op.f("ix_messages_run_id"), "messages", ["run_id"], unique=False)
    op.create_index(op.f("ix_messages_step_id"), "messages", ["step_id"], unique=False)
    op.create_table(
        "passages",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("archive_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["archive_id"], ["archives.id"], name=op.f("fk_passages_archive_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passages")),
    )
    op.create_index(
        op.f("ix_passages_archive_id_created_at_id"), "passages", ["archive_id", "created_at", "id"], unique=False
    )
    op.create_index(
        op.f("ix_passages_organization_id_created_at_id"),
        "passages",
        ["organization_id", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("stop_detail", sa.Text(), nullable=True),
        sa.Column("background", sa.Boolean(), nullable=False),
        sa.Column("input", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("request_config", sa.JSON(), nullable=False),
        sa.Column("callback_url", sa.Text(), nullable=True),
        sa.Column("callback_due_at", sa.BigInteger(), nullable=True),
        sa.Column("callback_attempts", sa.Integer(), nullable=False),
        sa.Column("callback_sent_at", sa.BigInteger(), nullable=True),
        sa.Column("callback_status_code", sa.Integer(), nullable=True),
        sa.Column("callback_error", sa.Text(), nullable=True),
        sa.Column("usage", sa.JSON(), nullable=False),
        sa.Column("step_count", sa.Integer(), nullable=False),
        sa.Column("taken_up", sa.Integer(), nullable=False),
        sa.Column("ttft_ns", sa.BigInteger(), nullable=True),
        sa.Column("total_duration_ns", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("owner_incarnation", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_runs_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_agent_id_created_at_id"), "runs", ["agent_id", "created_at", "id"], unique=False)
    op.create_index(
        op.f("ix_runs_callback_due_at"),
        "runs",
        ["callback_due_at"],
        unique=False,
        sqlite_where=sa.text("callback_due_at IS NOT NULL"),
        postgresql_where=sa.text("callback_due_at IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_runs_organization_id_created_at_id"), "runs", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_runs_status"), "runs", ["status"], unique=False)
    op.create_table(
        "sandbox_variables",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("sandbox_config_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["sandbox_config_id"],
            ["sandbox_configs.id"],
            name=op.f("fk_sandbox_variables_sandbox_config_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sandbox_variables")),
        sa.UniqueConstraint("sandbox_config_id", "key", name=op.f("uq_sandbox_variables_sandbox_config_id_key")),
    )
    op.create_index(
        op.f("ix_sandbox_variables_sandbox_config_id_created_at_id"),
        "sandbox_variables",
        ["sandbox_config_id", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "tool_policies",
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("permits", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("quota", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("updated_by_id", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_tool_policies_organization_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_tool_policies")),
    )
    op.create_table(
        "tool_tags",
        sa.Column("tool_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["tool_id"], ["tools.id"], name=op.f("fk_tool_tags_tool_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("tool_id", "tag", name=op.f("pk_tool_tags")),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=True),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], name=op.f("fk_users_organization_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
    )
    op.create_index(op.f("ix_users_created_at_id"), "users", ["created_at", "id"], unique=False)
    op.create_index(op.f("ix_users_organization_id"), "users", ["organization_id"], unique=False)
    op.create_table(
        "working_memory",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_working_memory_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "key", name=op.f("pk_working_memory")),
    )
    op.create_index(
        "ix_working_memory_ending",
        "working_memory",
        ["expires_at"],
        unique=False,
        sqlite_where=sa.text("expires_at IS NOT NULL"),
        postgresql_where=sa.text("expires_at IS NOT NULL"),
    )
    op.create_index(
        "ix_working_memory_of_agent_ending",
        "working_memory",
        ["agent_id", "expires_at"],
        unique=False,
        sqlite_where=sa.text("expires_at IS NOT NULL"),
        postgresql_where=sa.text("expires_at IS NOT NULL"),
    )
    op.create_table(
        "working_memory_heads",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_working_memory_heads_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_working_memory_heads")),
    )
    op.create_table(
        "access_tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_access_tokens_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_tokens")),
    )
    op.create_index(op.f("ix_access_tokens_expires_at"), "access_tokens", ["expires_at"], unique=False)
    op.create_index(
        op.f("ix_access_tokens_organization_id_created_at_id"),
        "access_tokens",
        ["organization_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(op.f("ix_access_tokens_user_id"), "access_tokens", ["user_id"], unique=False)
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("agent_ids", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_api_keys_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.create_index(
        op.f("ix_api_keys_organization_id_created_at_id"),
        "api_keys",
        ["organization_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(op.f("ix_api_keys_user_id"), "api_keys", ["user_id"], unique=False)
    op.create_table(
        "approvals",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("runs", sa.JSON(), nullable=False),
        sa.Column("answers", sa.JSON(), nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_approvals_agent_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["message_id"], ["messages.id"], name=op.f("fk_approvals_message_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "conversation_id", name=op.f("pk_approvals")),
    )
    op.create_index(op.f("ix_approvals_message_id"), "approvals", ["message_id"], unique=False)
    op.create_index(op.f("ix_approvals_requested_at"), "approvals", ["requested_at"], unique=False)
    op.create_table(
        "conversation_blocks",
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("block_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["block_id"], ["blocks.id"], name=op.f("fk_conversation_blocks_block_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_conversation_blocks_conversation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation_id", "label", name=op.f("pk_conversation_blocks")),
    )
    op.create_index(op.f("ix_conversation_blocks_block_id"), "conversation_blocks", ["block_id"], unique=False)
    op.create_table(
        "conversation_shares",
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_conversation_shares_conversation_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["message_id"], ["messages.id"], name=op.f("fk_conversation_shares_message_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("conversation_id", "message_id", name=op.f("pk_conversation_shares")),
    )
    op.create_index(op.f("ix_conversation_shares_message_id"), "conversation_shares", ["message_id"], unique=False)
    op.create_table(
        "fact_sources",
        sa.Column("fact_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["fact_id"], ["facts.id"], name=op.f("fk_fact_sources_fact_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("fact_id", "message_id", name=op.f("pk_fact_sources")),
    )
    op.create_table(
        "group_agents",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_group_agents_agent_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name=op.f("fk_group_agents_group_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("group_id", "agent_id", name=op.f("pk_group_agents")),
    )
    op.create_index(op.f("ix_group_agents_agent_id"), "group_agents", ["agent_id"], unique=False)
    op.create_table(
        "group_blocks",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("block_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["block_id"], ["blocks.id"], name=op.f("fk_group_blocks_block_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name=op.f("fk_group_blocks_group_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("group_id", "block_id", name=op.f("pk_group_blocks")),
    )
    op.create_index(op.f("ix_group_blocks_block_id"), "group_blocks", ["block_id"], unique=False)
    op.create_table(
        "passage_tags",
        sa.Column("passage_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["passage_id"], ["passages.id"], name=op.f("fk_passage_tags_passage_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("passage_id", "tag", name=op.f("pk_passage_tags")),
    )
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("segment", sa.Text(), nullable=False),
        sa.Column("upto", sa.Integer(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_events_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_run_events")),
    )
    op.create_index(op.f("ix_run_events_created_at"), "run_events", ["created_at"], unique=False)
    op.create_table(
        "run_otids",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("otid", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_run_otids_agent_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_otids_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("agent_id", "otid", "run_id", name=op.f("pk_run_otids")),
    )
    op.create_index(op.f("ix_run_otids_run_id"), "run_otids", ["run_id"], unique=False)
    op.create_table(
        "steps",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("provider_name", sa.Text(), nullable=True),
        sa.Column("provider_category", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("model_handle", sa.Text(), nullable=True),
        sa.Column("model_endpoint", sa.Text(), nullable=True),
        sa.Column("context_window_limit", sa.BigInteger(), nullable=True),
        sa.Column("usage", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("feedback", sa.Text(), nullable=True),
        sa.Column("transaction_id", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("llm_ns", sa.BigInteger(), nullable=True),
        sa.Column("tool_ns", sa.BigInteger(), nullable=True),
        sa.Column("step_ns", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_steps_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_steps")),
    )
    op.create_index(op.f("ix_steps_agent_id_created_at"), "steps", ["agent_id", "created_at"], unique=False)
    op.create_index(
        op.f("ix_steps_organization_id_created_at_id"), "steps", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_steps_run_id"), "steps", ["run_id"], unique=False)
    op.create_table(
        "tool_calls",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("step_id", sa.Text(), nullable=True),
        sa.Column("call_id", sa.Text(), nullable=True),
        sa.Column("tool_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("counted", sa.Boolean(), nullable=False),
        sa.Column("duration_us", sa.BigInteger(), nullable=False),
        sa.Column("cpu_us", sa.BigInteger(), nullable=False),
        sa.Column("memory_peak_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_tool_calls_agent_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_tool_calls_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_tool_calls")),
    )
    op.create_index(op.f("ix_tool_calls_agent_id_created_at"), "tool_calls", ["agent_id", "created_at"], unique=False)
    op.create_index(
        op.f("ix_tool_calls_organization_id_created_at"), "tool_calls", ["organization_id", "created_at"], unique=False
    )
    op.create_index(op.f("ix_tool_calls_run_id"), "tool_calls", ["run_id"], unique=False)
    op.create_index(op.f("ix_tool_calls_tool_id"), "tool_calls", ["tool_id"], unique=False)
    op.create_table(
        "access_token_agents",
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_access_token_agents_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["token_id"], ["access_tokens.id"], name=op.f("fk_access_token_agents_token_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("token_id", "agent_id", name=op.f("pk_access_token_agents")),
    )
    op.create_index(op.f("ix_access_token_agents_agent_id"), "access_token_agents", ["agent_id"], unique=False)
    op.create_table(
        "step_tags",
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_step_tags_step_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("step_id", "tag", name=op.f("pk_step_tags")),
    )
    op.create_index(op.f("ix_step_tags_tag"), "step_tags", ["tag"], unique=False)
    op.create_table(
        "step_traces",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("request_bytes", sa.BigInteger(), nullable=False),
        sa.Column("response", sa.LargeBinary(), nullable=True),
        sa.Column("response_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_step_traces_step_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_step_traces")),
        sa.UniqueConstraint("step_id", name=op.f("uq_step_traces_step_id")),
    )


def downgrade() -> None:
    op.drop_table("step_traces")
    op.drop_table("step_tags")
    op.drop_table("access_token_agents")
    op.drop_table("tool_calls")
    op.drop_table("steps")
    op.drop_table("run_otids")
    op.drop_table("run_events")
    op.drop_table("passage_tags")
    op.drop_table("group_blocks")
    op.drop_table("group_agents")
    op.drop_table("fact_sources")
    op.drop_table("conversation_shares")
    op.drop_table("conversation_blocks")
    op.drop_table("approvals")
    op.drop_table("api_keys")
    op.drop_table("access_tokens")
    op.drop_table("working_memory_heads")
    op.drop_table("working_memory")
    op.drop_table("users")
    op.drop_table("tool_tags")
    op.drop_table("tool_policies")
    op.drop_table("sandbox_variables")
    op.drop_table("runs")
    op.drop_table("passages")
    op.drop_table("messages")
    op.drop_table("journal")
    op.drop_table("jobs")
    op.drop_table("groups")
    op.drop_table("facts")
    op.drop_table("fact_states")
    op.drop_table("entities")
    op.drop_table("conversations")
    op.drop_table("context")
    op.drop_table("block_tags")
    op.drop_table("block_identities")
    op.drop_table("block_history")
    op.drop_table("agent_tools")
    op.drop_table("agent_tags")
    op.drop_table("agent_secrets")
    op.drop_table("agent_identities")
    op.drop_table("agent_head")
    op.drop_table("agent_blocks")
    op.drop_table("agent_archives")
    op.drop_table("tools")
    op.drop_table("search_vectors")
    op.drop_table("search_unordered")
    op.drop_table("search_sketches")
    op.drop_table("search_segments")
    op.drop_table("search_scopes")
    op.drop_table("search_removed")
    op.drop_table("search_postings")
    op.drop_table("search_items")
    op.drop_table("sandbox_configs")
    op.drop_table("organizations")
    op.drop_table("node")
    op.drop_table("mcp_servers")
    op.drop_table("identities")
    op.drop_table("blocks")
    op.drop_table("archives")
    op.drop_table("agents")
