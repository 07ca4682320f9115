"""Neighbours in the search: the place of a message in its conversation, and of a passage in its file or batch.

Messages get their places from their rows. Passages stored before belong to no batch.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0006"
branch_labels = None
depends_on = None

_OF_MESSAGE = "FROM messages WHERE messages.id = search_items.item_id"


def upgrade() -> None:
    op.add_column("passages", sa.Column("batch_id", sa.Text()))
    op.add_column("passages", sa.Column("position", sa.BigInteger()))
    op.add_column("search_items", sa.Column("thread", sa.Text()))
    op.add_column("search_items", sa.Column("place", sa.BigInteger()))
    op.execute(
        f"UPDATE search_items SET thread = (SELECT coalesce(conversation_id, agent_id) {_OF_MESSAGE}), "
        f"place = (SELECT seq {_OF_MESSAGE}) WHERE kind = 'message'"
    )
    in_order = sa.text("thread IS NOT NULL")
    op.create_index(
        "ix_search_items_thread",
        "search_items",
        ["thread", "place"],
        sqlite_where=in_order,
        postgresql_where=in_order,
    )


def downgrade() -> None:
    op.drop_index("ix_search_items_thread", table_name="search_items")
    for table, column in (
        ("search_items", "place"),
        ("search_items", "thread"),
        ("passages", "position"),
        ("passages", "batch_id"),
    ):
        op.drop_column(table, column)
