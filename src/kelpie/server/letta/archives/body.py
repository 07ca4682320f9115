"""Request bodies for archives and passages, and for their search."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.errors import InvalidInput
from kelpie.core.memory.passages import CHUNK_SIZE, NewArchive, NewPassage
from kelpie.server.http.limits.free_json import Metadata
from kelpie.server.http.limits.request_limits import Tags
from kelpie.server.http.times import moment
from kelpie.server.letta.models.body import EmbeddingConfig

NAME_CHARS_MAX = 500
BATCH_MAX = 1000

Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)]


class CreateArchive(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: Name
    description: str | None = None
    embedding: str | None = Field(None, description="The handle of the archive's embedding model.")
    embedding_config: EmbeddingConfig | None = Field(None, json_schema_extra={"deprecated": True})


class UpdateArchive(BaseModel):
    """Changes to an archive; omitted or null fields stay as they are."""

    model_config = ConfigDict(extra="ignore")

    name: Name | None = None
    description: str | None = None
    embedding: str | None = Field(
        None, description="Switches to another embedding model and computes new vectors (Kelpie)."
    )


class PassageBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    text: str
    metadata: Metadata | None = None
    tags: Tags | None = None
    created_at: datetime | None = Field(None, description="When the passage was created. Defaults to now.")


class PassageBatch(BaseModel):
    model_config = ConfigDict(extra="ignore")

    passages: Annotated[list[PassageBody], Field(max_length=BATCH_MAX, fail_fast=True)]


class MemoryBody(BaseModel):
    """A passage for an agent's archive."""

    model_config = ConfigDict(extra="ignore")

    text: str
    tags: Tags | None = None
    created_at: datetime | None = Field(None, description="When the passage was created. Defaults to now.")


def new_archive(body: CreateArchive) -> NewArchive:
    """Raises InvalidInput for an invalid handle."""
    config = body.embedding_config
    handle = body.embedding or (config.requested()["embedding"] if config else None)
    if handle is not None and "/" not in handle:
        raise InvalidInput("embedding", "must have the form provider/model")
    chunk_size = config.embedding_chunk_size if config else None
    return NewArchive(body.name, body.description, handle, chunk_size or CHUNK_SIZE)


def archive_changes(body: UpdateArchive) -> dict[str, Any]:
    return body.model_dump(exclude_none=True)


def new_passage(body: PassageBody | MemoryBody, within: str = "") -> NewPassage:
    """Raises InvalidInput for an invalid date; `within` names the passage."""
    metadata = (body.metadata or {}) if isinstance(body, PassageBody) else {}
    return NewPassage(body.text, tuple(body.tags or ()), metadata, moment(f"{within}created_at", body.created_at))


def new_passages(batch: PassageBatch) -> list[NewPassage]:
    """Raises InvalidInput, which names the passage."""
    return [new_passage(body, f"passages[{at}].") for at, body in enumerate(batch.passages)]
