"""MCP: options of servers, the tools that each has, OAuth, and tasks."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("mcp_servers", sa.Column("options", sa.JSON(), nullable=False, server_default="{}"))
    op.create_table(
        "mcp_tools",
        sa.Column("tool_id", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("remote_name", sa.Text(), nullable=False),
        sa.Column("remote", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["tool_id"], ["tools.id"], name=op.f("fk_mcp_tools_tool_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["server_id"], ["mcp_servers.id"], name=op.f("fk_mcp_tools_server_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("tool_id", name=op.f("pk_mcp_tools")),
    )
    op.create_index(op.f("ix_mcp_tools_server_id_remote_name"), "mcp_tools", ["server_id", "remote_name"])
    op.create_table(
        "mcp_oauth",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("login", sa.Text()),
        sa.Column("tokens", sa.Text()),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["id"], ["mcp_servers.id"], name=op.f("fk_mcp_oauth_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mcp_oauth")),
    )
    op.create_index(op.f("ix_mcp_oauth_login"), "mcp_oauth", ["login"])
    op.create_table(
        "mcp_tasks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text()),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("status_message", sa.Text()),
        sa.Column("questions", sa.JSON(), nullable=False),
        sa.Column("poll_at", sa.BigInteger()),
        sa.Column("poll_ms", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_mcp_tasks_agent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mcp_tasks")),
    )
    op.create_index(op.f("ix_mcp_tasks_poll_at"), "mcp_tasks", ["poll_at"])
    op.create_index(
        op.f("ix_mcp_tasks_organization_id_created_at_id"), "mcp_tasks", ["organization_id", "created_at", "id"]
    )
    op.create_index(op.f("ix_mcp_tasks_agent_id"), "mcp_tasks", ["agent_id"])


def downgrade() -> None:
    op.drop_table("mcp_tasks")
    op.drop_table("mcp_oauth")
    op.drop_table("mcp_tools")
    with op.batch_alter_table("mcp_servers") as servers:
        servers.drop_column("options")
