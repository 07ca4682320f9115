"""Scheduled batches: the batch of a firing whose messages have a turn each."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("firings", sa.Column("batch_id", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("firings", "batch_id")
