"""Archives and passages as Letta's clients see them."""

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

from kelpie.core.memory.passages import Archive, Passage
from kelpie.core.search_hits import Hit
from kelpie.core.time import as_datetime
from kelpie.memory.hybrid_search import SearchResults
from kelpie.server.http.headers.search_headers import search_notes
from kelpie.server.http.match_reasons import matched_shape
from kelpie.server.http.times import timestamp
from kelpie.server.letta.models.shape import EmbeddingFacts, embedding_config, vector_numbers

Embeddings = Mapping[str, EmbeddingFacts]


def archive_shape(archive: Archive, embeddings: Embeddings) -> dict[str, Any]:
    return {
        "created_by_id": archive.created_by_id,
        "last_updated_by_id": archive.last_updated_by_id,
        "created_at": timestamp(archive.created_at),
        "updated_at": timestamp(archive.updated_at),
        "name": archive.name,
        "description": archive.description,
        "organization_id": archive.organization_id,
        "vector_db_provider": "native",
        "embedding_config": embedding_config(archive.embedding, archive.embedding_chunk_size, embeddings),
        "metadata": None if archive.metadata is None else dict(archive.metadata),
        "id": archive.id,
    }


def passage_shape(
    passage: Passage, archive: Archive | None, embeddings: Embeddings, vector: bytes | None
) -> dict[str, Any]:
    """A passage; `vector` is its embedding as 32-bit floats."""
    config = embedding_config(archive.embedding, archive.embedding_chunk_size, embeddings) if archive else None
    return {
        "created_by_id": passage.created_by_id,
        "last_updated_by_id": passage.last_updated_by_id,
        "created_at": timestamp(passage.created_at),
        "updated_at": timestamp(passage.updated_at),
        "is_deleted": False,
        "organization_id": passage.organization_id,
        "archive_id": passage.archive_id,
        "source_id": None,
        "file_id": None,
        "file_name": None,
        "metadata": dict(passage.metadata),
        "tags": list(passage.tags) or None,
        "id": passage.id,
        "text": passage.text,
        "embedding": None if vector is None else vector_numbers(vector),
        "embedding_config": config,
    }


def memory_shape(passage: Passage, zone: tzinfo, hit: Hit | None = None) -> dict[str, Any]:
    """A passage in the results of a search in an agent's memory, with the time in the agent's zone."""
    return {
        "id": passage.id,
        "timestamp": as_datetime(passage.created_at).astimezone(zone).isoformat(),
        "content": passage.text,
        "tags": list(passage.tags),
        **matched_shape(hit),
    }


def search_mode_shape(searched: SearchResults[Any]) -> dict[str, Any]:
    """The mode of a search, and the reason if it is not the requested one: keys of Kelpie's own."""
    notes = search_notes(searched.mode, searched.lacking, searched.lost)
    return {"search_mode": searched.mode, **({"search_note": " ".join(notes)} if notes else {})}


def ranks(hit: Hit | None) -> dict[str, Any]:
    """The ranks of a passage in the rankings it was found in, and why it matched (a key of Kelpie's own)."""
    places = {} if hit is None else {"fts_rank": hit.words_rank, "vector_rank": hit.meaning_rank}
    return {name: place for name, place in places.items() if place is not None} | matched_shape(hit)
