"""The tables of what can be searched. They stand here because storage builds on search, not the other way."""

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text, UniqueConstraint

# One row per searchable item; the text index of the dialect is keyed by its number.
search_items = Table(
    "search_items",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("item_id", Text, nullable=False),
    UniqueConstraint("kind", "item_id", name="uq_search_items_kind_item_id"),
    Index("ix_search_items_kind_scope", "kind", "scope"),
)

# Scopes whose owner is gone, so that nobody finds their items any more; they are swept up in pieces.
search_removed = Table(
    "search_removed",
    MetaData(),
    Column("kind", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
)
