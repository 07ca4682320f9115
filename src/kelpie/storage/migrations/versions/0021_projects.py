"""Projects, their tags and agents, and API keys that are limited to projects."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("organization_id", "name", name=op.f("uq_projects_organization_id_name")),
    )
    op.create_index(
        op.f("ix_projects_organization_id_created_at_id"),
        "projects",
        ["organization_id", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "project_agents",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_project_agents_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_project_agents_project_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", "agent_id", name=op.f("pk_project_agents")),
    )
    op.create_index(op.f("ix_project_agents_agent_id"), "project_agents", ["agent_id"], unique=False)
    op.create_table(
        "project_tags",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_project_tags_project_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", "tag", name=op.f("pk_project_tags")),
    )
    op.create_index(op.f("ix_project_tags_tag"), "project_tags", ["tag"], unique=False)
    op.add_column("api_keys", sa.Column("project_ids", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("api_keys") as keys:
        keys.drop_column("project_ids")
    op.drop_table("project_agents")
    op.drop_table("project_tags")
    op.drop_table("projects")
