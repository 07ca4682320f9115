"""The first schema: everything in `tables` at the first release, and on SQLite the text index."""

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
        sa.Column("metadata", sa.JSON(), nullable=True),
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blocks")),
    )
    op.create_index(
        op.f("ix_blocks_organization_id_created_at_id"), "blocks", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_blocks_organization_id_label"), "blocks", ["organization_id", "label"], unique=False)
    op.create_table(
        "node",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node")),
    )
    op.create_table(
        "search_items",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_search_items")),
        sa.UniqueConstraint("kind", "item_id", name=op.f("uq_search_items_kind_item_id")),
    )
    op.create_index(op.f("ix_search_items_kind_scope"), "search_items", ["kind", "scope"], unique=False)
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
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_messages_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
        sa.UniqueConstraint("agent_id", "seq", name=op.f("uq_messages_agent_id_seq")),
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
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["archive_id"], ["archives.id"], name=op.f("fk_passages_archive_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passages")),
    )
    op.create_index(
        op.f("ix_passages_archive_id_created_at_id"), "passages", ["archive_id", "created_at", "id"], unique=False
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("background", sa.Boolean(), nullable=False),
        sa.Column("input", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("request_config", sa.JSON(), nullable=False),
        sa.Column("callback_url", sa.Text(), nullable=True),
        sa.Column("usage", sa.JSON(), nullable=False),
        sa.Column("step_count", sa.Integer(), nullable=False),
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
        op.f("ix_runs_organization_id_created_at_id"), "runs", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_runs_status"), "runs", ["status"], unique=False)
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
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("llm_ns", sa.BigInteger(), nullable=True),
        sa.Column("tool_ns", sa.BigInteger(), nullable=True),
        sa.Column("step_ns", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_steps_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_steps")),
    )
    op.create_index(
        op.f("ix_steps_organization_id_created_at_id"), "steps", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_steps_run_id"), "steps", ["run_id"], unique=False)
    if op.get_bind().dialect.name == "sqlite":
        op.execute("CREATE VIRTUAL TABLE search_text USING fts5(text, tokenize='porter unicode61')")


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE search_text")
    op.drop_table("steps")
    op.drop_table("runs")
    op.drop_table("passages")
    op.drop_table("messages")
    op.drop_table("journal")
    op.drop_table("context")
    op.drop_table("block_tags")
    op.drop_table("agent_tools")
    op.drop_table("agent_tags")
    op.drop_table("agent_secrets")
    op.drop_table("agent_head")
    op.drop_table("agent_blocks")
    op.drop_table("agent_archives")
    op.drop_table("tools")
    op.drop_table("search_items")
    op.drop_table("node")
    op.drop_table("blocks")
    op.drop_table("archives")
    op.drop_table("agents")
