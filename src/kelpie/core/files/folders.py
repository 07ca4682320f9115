"""Folders: named collections of files, which agents read when a folder is attached to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kelpie.core.ids import DEFAULT_ORGANIZATION, FolderId, OrganizationId
from kelpie.core.memory.passages import CHUNK_SIZE
from kelpie.core.time import Micros

FOLDERS_MAX = 100  # of one agent


@dataclass(frozen=True, slots=True)
class Folder:
    id: FolderId
    name: str
    created_at: Micros
    updated_at: Micros
    description: str | None = None
    instructions: str | None = None
    embedding: str | None = None  # a handle; None is the server's default model
    embedding_chunk_size: int = CHUNK_SIZE  # tokens of a passage, at most
    metadata: Mapping[str, Any] | None = None
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


@dataclass(frozen=True, slots=True)
class NewFolder:
    """A folder to create; id and times are assigned at creation."""

    name: str
    description: str | None = None
    instructions: str | None = None
    embedding: str | None = None
    embedding_chunk_size: int = CHUNK_SIZE
    metadata: Mapping[str, Any] | None = None
