"""Model providers that organizations add with their own keys."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "providers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("provider_type", sa.Text(), nullable=False),
        sa.Column("api_key", sa.Text(), nullable=True),
        sa.Column("access_key", sa.Text(), nullable=True),
        sa.Column("base_url", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("api_version", sa.Text(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("last_synced_at", sa.BigInteger(), nullable=True),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_updated_by_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_providers")),
        sa.UniqueConstraint("organization_id", "name", name=op.f("uq_providers_organization_id_name")),
    )
    op.create_index(
        op.f("ix_providers_organization_id_created_at_id"), "providers", ["organization_id", "created_at", "id"]
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_providers_organization_id_created_at_id"), table_name="providers")
    op.drop_table("providers")
