"""Request bodies for folders."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.files.file_names import NAME_CHARS_MAX
from kelpie.core.files.folders import NewFolder
from kelpie.core.files.passage_cuts import CHUNK_TOKENS_MAX, CHUNK_TOKENS_MIN
from kelpie.core.memory.passages import CHUNK_SIZE
from kelpie.server.http.limits.free_json import Metadata
from kelpie.server.letta.models.body import EmbeddingConfig

TEXT_CHARS_MAX = 50_000

Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)]
Text = Annotated[str, Field(max_length=TEXT_CHARS_MAX)]
ChunkSize = Annotated[int, Field(ge=CHUNK_TOKENS_MIN, le=CHUNK_TOKENS_MAX)]


class CreateFolder(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: Name
    description: Text | None = None
    instructions: Text | None = Field(
        None, description="How agents shall use the folder; it is shown in their prompts."
    )
    metadata: Metadata | None = None
    embedding: str | None = Field(None, description="The handle of the folder's embedding model.")
    embedding_chunk_size: ChunkSize | None = Field(None, description="Tokens of a passage, at most.")
    embedding_config: EmbeddingConfig | None = Field(None, json_schema_extra={"deprecated": True})


class UpdateFolder(BaseModel):
    """Changes to a folder; omitted or null fields stay as they are."""

    model_config = ConfigDict(extra="ignore")

    name: Name | None = None
    description: Text | None = None
    instructions: Text | None = None
    metadata: Metadata | None = None
    embedding: str | None = Field(
        None, description="Switches to another embedding model and computes new vectors (Kelpie)."
    )
    embedding_config: EmbeddingConfig | None = Field(None, json_schema_extra={"deprecated": True})


def new_folder(body: CreateFolder) -> NewFolder:
    older = body.embedding_config
    embedding = body.embedding or (older.requested()["embedding"] if older else None)
    chunk_size = body.embedding_chunk_size or (older.embedding_chunk_size if older else None) or CHUNK_SIZE
    return NewFolder(body.name, body.description, body.instructions, embedding, chunk_size, body.metadata)


def folder_changes(body: UpdateFolder) -> dict[str, Any]:
    names = ("name", "description", "instructions", "metadata", "embedding")
    changes = {name: value for name in names if (value := getattr(body, name)) is not None}
    if body.embedding_config is not None:
        changes.setdefault("embedding", body.embedding_config.requested()["embedding"])
    return changes
