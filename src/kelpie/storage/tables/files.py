"""Folders, their files with the text as passages, and the files that agents have open."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, Integer, Table, Text, text

from kelpie.storage.tables.metadata import metadata

_PRESENT = text("NOT removed")

folders = Table(
    "folders",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("instructions", Text),
    Column("embedding", Text),
    Column("embedding_chunk_size", Integer, nullable=False),
    Column("metadata", JSON),
    Column("removed", Boolean, nullable=False),  # deleted for clients; its files are being deleted
    Column("created_by_id", Text),
    Column("last_updated_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
    Index("uq_folders_organization_id_name", "organization_id", "name", unique=True, sqlite_where=_PRESENT),
    Index(None, "removed"),
)

files = Table(
    "files",
    metadata,
    Column("id", Text, primary_key=True),
    Column("folder_id", Text, ForeignKey("folders.id", ondelete="CASCADE"), nullable=False),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("original_name", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("note", Text),
    Column("passages", BigInteger),
    Column("indexed", BigInteger, nullable=False),
    Column("embedded", BigInteger, nullable=False),
    Column("lines", BigInteger, nullable=False),
    Column("chars", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("removed", Boolean, nullable=False),  # deleted for clients; its passages are being deleted
    Column("opened_after", Text),  # the last agent that it was opened for; None when it was for all
    Column("created_by_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "folder_id", "created_at", "id"),
    Index("uq_files_folder_id_name", "folder_id", "name", unique=True, sqlite_where=_PRESENT),
    Index(None, "status", "organization_id", "updated_at"),
    Index(None, "removed"),
)

# The text of a file, in pieces that follow each other without a gap. What is not yet indexed is no part of the search.
file_passages = Table(
    "file_passages",
    metadata,
    Column("id", Text, primary_key=True),
    Column("file_id", Text, ForeignKey("files.id", ondelete="CASCADE"), nullable=False),
    Column("organization_id", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Column("line", BigInteger, nullable=False),  # the number of the first line that begins in it
    Column("mid_line", Boolean, nullable=False),
    Column("checksum", BigInteger, nullable=False),  # of the text; what does not match is not shown
    Index(None, "file_id", "position", unique=True),
    Index(None, "file_id", "line", "position"),
)

agent_folders = Table(
    "agent_folders",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("folder_id", Text, ForeignKey("folders.id", ondelete="CASCADE"), primary_key=True),
    Column("attached_at", BigInteger, nullable=False),
    Index(None, "folder_id", "agent_id"),
)

# What an agent sees of a file. A file without a row here was never open for the agent.
file_views = Table(
    "file_views",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("file_id", Text, ForeignKey("files.id", ondelete="CASCADE"), primary_key=True),
    Column("is_open", Boolean, nullable=False),
    Column("accessed_at", BigInteger, nullable=False),
    Column("start_line", BigInteger),
    Column("end_line", BigInteger),
    Index(None, "file_id"),
)
