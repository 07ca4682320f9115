"""Folders and files as Letta's clients see them."""

from collections.abc import Mapping
from typing import Any

from kelpie.core.agents.agent import Agent
from kelpie.core.files.files import File, FilePassage, FileView, full_name, view_id
from kelpie.core.files.folders import Folder
from kelpie.core.ids import AgentId
from kelpie.server.http.times import timestamp
from kelpie.server.letta.models.shape import EmbeddingFacts, embedding_config, vector_numbers

Embeddings = Mapping[str, EmbeddingFacts]

STATS_FILES_MAX = 1_000  # of one folder


def folder_shape(folder: Folder, embeddings: Embeddings, default: str | None = None) -> dict[str, Any]:
    """A folder; `default` is the embedding model of those that name none."""
    return {
        "name": folder.name,
        "description": folder.description,
        "instructions": folder.instructions,
        "metadata": None if folder.metadata is None else dict(folder.metadata),
        "id": folder.id,
        "embedding_config": embedding_config(folder.embedding or default, folder.embedding_chunk_size, embeddings),
        "organization_id": folder.organization_id,
        "created_by_id": folder.created_by_id,
        "last_updated_by_id": folder.last_updated_by_id,
        "created_at": timestamp(folder.created_at),
        "updated_at": timestamp(folder.updated_at),
    }


def source_shape(folder: Folder, embeddings: Embeddings, default: str | None = None) -> dict[str, Any]:
    """A folder under its older name."""
    return folder_shape(folder, embeddings, default) | {"vector_db_provider": "native"}


def file_shape(file: File, content: str | None = None, folder: str | None = None) -> dict[str, Any]:
    """A file; with the name of its folder, its name has that in front."""
    return {
        "source_id": file.folder_id,
        "file_name": file.name if folder is None else full_name(folder, file.name),
        "original_file_name": file.original_name,
        "file_path": None,
        "file_type": file.media_type,
        "file_size": file.size,
        "file_creation_date": None,
        "file_last_modified_date": None,
        "processing_status": file.status.value,
        "error_message": file.error,
        "total_chunks": file.passages,
        "chunks_embedded": None if file.passages is None else file.embedded,
        "content": content,
        "id": file.id,
        "organization_id": file.organization_id,
        "created_at": timestamp(file.created_at),
        "updated_at": timestamp(file.updated_at),
    }


def passage_shape(
    passage: FilePassage, file: File, folder: Folder, embeddings: Embeddings, default: str | None, vector: bytes | None
) -> dict[str, Any]:
    """A passage of a file."""
    return {
        "created_by_id": file.created_by_id,
        "last_updated_by_id": file.created_by_id,
        "created_at": timestamp(file.created_at),
        "updated_at": timestamp(file.updated_at),
        "is_deleted": False,
        "organization_id": file.organization_id,
        "archive_id": None,
        "source_id": file.folder_id,
        "file_id": file.id,
        "file_name": full_name(folder.name, file.name),
        "metadata": {},
        "tags": None,
        "id": passage.id,
        "text": passage.text.strip(),
        "embedding": None if vector is None else vector_numbers(vector),
        "embedding_config": embedding_config(folder.embedding or default, folder.embedding_chunk_size, embeddings),
    }


def view_shape(agent_id: AgentId, view: FileView) -> dict[str, Any]:
    """A file of an agent."""
    return {
        "id": view_id(agent_id, view.file.id),
        "file_id": view.file.id,
        "file_name": view.name,
        "folder_id": view.file.folder_id,
        "folder_name": view.folder_name,
        "is_open": view.is_open,
        "last_accessed_at": timestamp(view.accessed_at),
        "visible_content": view.visible,
        "start_line": view.start_line,
        "end_line": view.end_line,
    }


_OF_NO_TEMPLATE = ("project_id", "template_name", "template_id", "base_template_id", "deployment_id", "entity_id")


def file_block_shape(agent: Agent, view: FileView) -> dict[str, Any]:
    """A file of an agent in the form of a block, as it is part of the agent's memory."""
    return {
        "value": view.visible or "",
        "limit": agent.per_file_view_window_char_limit,
        **dict.fromkeys(_OF_NO_TEMPLATE),
        "is_template": False,
        "preserve_on_migration": False,
        "label": view.name,
        "read_only": True,
        "description": None,
        "metadata": {},
        "hidden": None,
        "id": view_id(agent.id, view.file.id).replace("file_agent-", "block-", 1),
        "created_by_id": None,
        "last_updated_by_id": None,
        "tags": [],
        "file_id": view.file.id,
        "source_id": view.file.folder_id,
        "is_open": view.is_open,
        "last_accessed_at": timestamp(view.accessed_at),
    }
