"""The tables of the search index. They are here because storage builds on search, not the other way."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

_NUMBER = BigInteger().with_variant(Integer, "sqlite")
_IN_ORDER = text("thread IS NOT NULL")

# One row per searchable item; the text index and the vectors are keyed by its number.
search_items = Table(
    "search_items",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("item_id", Text, nullable=False),
    Column("model", Text),  # the embedding model it was last given a vector of; None before
    Column("loose", Boolean, nullable=False),  # true if its words are here, and not yet in a segment
    Column("checksum", BigInteger, nullable=False),  # of its words: what a segment says of others is not about it
    Column("words", LargeBinary, nullable=False),  # the numbers of the words of its text
    Column("thread", Text),  # the conversation, file or batch in which it has neighbours; None for an item by itself
    Column("place", BigInteger),  # its place among them: the neighbours are the next lower and the next higher one
    UniqueConstraint("kind", "item_id", name="uq_search_items_kind_item_id"),
    Index("ix_search_items_kind_scope", "kind", "scope", "loose", "checksum"),  # all that sums over loose items need
    Index("ix_search_items_kind_model", "kind", "model"),
    Index("ix_search_items_thread", "thread", "place", sqlite_where=_IN_ORDER),
)

# Some hundred items of a scope, or some ten thousand, whose words were sorted. It is never changed, except for the
# number of its items that have been removed since: segments are made, merged into others, and dropped.
search_segments = Table(
    "search_segments",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("size", Integer, nullable=False),  # number of items
    Column("gone", Integer, nullable=False),  # approximate number of removed items
    Column("first", BigInteger, nullable=False),  # the lowest and the highest number of its items
    Column("last", BigInteger, nullable=False),
    Column("bits", Integer, nullable=False),  # number of bits of a word's number that select its row of postings
    Column("checksum", BigInteger, nullable=False),  # of its members, which stand last: past them it takes long to read
    Column("members", LargeBinary, nullable=False),  # the number, the checksum and the length of each
    Index("ix_search_segments_kind_scope", "kind", "scope"),
)

# Items of a segment that contain a word, and how often; several words to a row.
search_postings = Table(
    "search_postings",
    metadata,
    Column("place", _NUMBER, primary_key=True, autoincrement=False),  # of the segment, and of the row in it
    Column("postings", LargeBinary, nullable=False),
    Column("checksum", BigInteger, nullable=False),
)

# Scopes whose unsealed items may be enough for a segment, or whose segments are to be merged.
search_unordered = Table(
    "search_unordered",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    sqlite_with_rowid=False,
)

# The signs of each vector's numbers, together by scope and model: all of a scope are read at once into memory.
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

# The vectors themselves, read only for the few that may be among the nearest. The checksum reveals a damaged one.
search_vectors = Table(
    "search_vectors",
    metadata,
    Column("item", BigInteger, primary_key=True, autoincrement=False),
    Column("model", Text, primary_key=True),
    Column("vector", LargeBinary, nullable=False),
    Column("checksum", BigInteger, nullable=False),
)

# State of a scope with vectors. Every change moves the version, so that its copy in memory is
# known to be old.
search_scopes = Table(
    "search_scopes",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("model", Text, nullable=False),  # the model it is searched by; vectors of another may be in preparation
    Column("version", BigInteger, nullable=False),
    Column("rewrites", BigInteger, nullable=False),  # number of changes that were more than additions at the end
    Column("mixed", Boolean, nullable=False),  # true if there may be vectors of another model, to be used or deleted
    sqlite_with_rowid=False,
)

# Scopes whose owner is gone, so that no search finds their items any more; they are deleted in pieces.
search_removed = Table(
    "search_removed",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
)
