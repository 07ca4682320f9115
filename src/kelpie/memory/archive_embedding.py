"""Embedding model of an archive, and the progress of a change to another one."""

from dataclasses import dataclass

from kelpie.core.memory.passages import Archive
from kelpie.search import embedding_coverage, vector_rows
from kelpie.world.database import Tx


@dataclass(frozen=True, slots=True)
class ArchiveEmbedding:
    """A model, or why there is none."""

    model: str | None
    lacking: str | None


@dataclass(frozen=True, slots=True)
class Progress:
    """The embedding model that is meant for an archive, the one it is searched by until all passages have its vectors,
    and how many of them have."""

    model: str | None
    searched_by: str | None
    done: int
    total: int


def with_progress(tx: Tx, archive: Archive, default: str | None) -> tuple[Archive, Progress]:
    """The archive, and how far its passages are embedded; `default` is the model of archives that name none."""
    model = archive.embedding or default
    used = vector_rows.models_of(tx, "passage", (archive.id,)).get(archive.id)
    return archive, Progress(model, used, *embedding_coverage.progress(tx, "passage", archive.id, model))
