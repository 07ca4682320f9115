"""Encrypted secrets: the table of keys, and a mark on every secret that is not encrypted yet.

The mark makes old text that looks like a ciphertext safe. The first start after the migration encrypts the marked
secrets in small batches. Secrets in JSON columns need no mark: they are objects, and a ciphertext is a string.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_MARKED = (("agent_secrets", "value"), ("sandbox_variables", "value"), ("mcp_servers", "token"))


def upgrade() -> None:
    op.create_table(
        "encryption_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("canary", sa.Text(), nullable=False),
        sa.Column("current", sa.Boolean(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("lost", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_encryption_keys")),
    )
    for table, column in _MARKED:
        op.execute(f"UPDATE {table} SET {column} = '0:' || {column} WHERE {column} IS NOT NULL")


def downgrade() -> None:
    if op.get_bind().scalar(sa.text("SELECT count(*) FROM encryption_keys")):
        raise RuntimeError("The secrets are encrypted, which the older schema cannot hold. Restore the backup.")
    for table, column in _MARKED:
        op.execute(f"UPDATE {table} SET {column} = substr({column}, 3) WHERE {column} LIKE '0:%'")
    op.drop_table("encryption_keys")
