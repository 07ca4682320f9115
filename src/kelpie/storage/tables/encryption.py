"""The keys that encrypt stored secrets: their ids and canaries. The keys themselves are never in the database."""

from sqlalchemy import BigInteger, Boolean, Column, Table, Text

from kelpie.storage.tables.metadata import metadata

encryption_keys = Table(
    "encryption_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("canary", Text, nullable=False),
    Column("current", Boolean, nullable=False),
    Column("complete", Boolean, nullable=False),
    Column("lost", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
