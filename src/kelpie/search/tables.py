"""The tables of what can be searched. They stand here because storage builds on search, not the other way."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, MetaData, Table, Text, UniqueConstraint

metadata = MetaData()

_NUMBER = BigInteger().with_variant(Integer, "sqlite")

# One row per searchable item; the text index of the dialect and the vectors are keyed by its number.
search_items = Table(
    "search_items",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("item_id", Text, nullable=False),
    Column("model", Text),  # the embedding model it was last given a vector of; None before
    UniqueConstraint("kind", "item_id", name="uq_search_items_kind_item_id"),
    Index("ix_search_items_kind_scope", "kind", "scope"),
    Index("ix_search_items_kind_model", "kind", "model"),
)

# The signs of each vector's numbers, together by scope and model: all of a scope are read at once to be held in memory.
search_sketches = Table(
    "search_sketches",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("item", BigInteger, primary_key=True, autoincrement=False),
    Column("sketch", LargeBinary, nullable=False),
    Index("ix_search_sketches_item", "item"),
    sqlite_with_rowid=False,
)

# The vectors themselves, read only for the few that may be among the nearest. The checksum tells a rotten one.
search_vectors = Table(
    "search_vectors",
    metadata,
    Column("item", BigInteger, primary_key=True, autoincrement=False),
    Column("model", Text, primary_key=True),
    Column("vector", LargeBinary, nullable=False),
    Column("checksum", BigInteger, nullable=False),
)

# What is known of a scope with vectors. The version is moved by every change, so that what is held of it in memory is
# known to be old.
search_scopes = Table(
    "search_scopes",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("model", Text, nullable=False),  # whose vectors it is searched by; those of another may be in the making
    Column("version", BigInteger, nullable=False),
    Column("rewrites", BigInteger, nullable=False),  # how many of the changes were more than additions at the end
    Column("mixed", Boolean, nullable=False),  # whether there may be vectors of another model, to be used or cleared
    sqlite_with_rowid=False,
)

# Scopes whose owner is gone, so that nobody finds their items any more; they are swept up in pieces.
search_removed = Table(
    "search_removed",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
)
