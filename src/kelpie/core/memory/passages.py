"""Archives, the passages in them, and what may be looked for among them.

An agent writes to and reads from at most one archive; an archive may serve many agents, or none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, ArchiveId, OrganizationId, PassageId
from kelpie.core.paging import Page
from kelpie.core.search_hits import SearchMode
from kelpie.core.time import Micros

PASSAGE_CHARS_MAX = 100_000
TAGS_MAX = 1000  # of one passage, or of one search
CHUNK_SIZE = 300


@dataclass(frozen=True, slots=True)
class Archive:
    id: ArchiveId
    name: str
    created_at: Micros
    updated_at: Micros
    description: str | None = None
    embedding: str | None = None
    embedding_chunk_size: int = CHUNK_SIZE
    metadata: Mapping[str, Any] | None = None
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


@dataclass(frozen=True, slots=True)
class NewArchive:
    """An archive to be made; id and times are given when it is."""

    name: str
    description: str | None = None
    embedding: str | None = None
    embedding_chunk_size: int = CHUNK_SIZE


@dataclass(frozen=True, slots=True)
class ArchiveQuery:
    """Which archives to list."""

    page: Page = Page()
    name: str | None = None
    agent_id: AgentId | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    id: PassageId
    archive_id: ArchiveId
    text: str
    created_at: Micros
    updated_at: Micros
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    created_by_id: str | None = None
    last_updated_by_id: str | None = None

    @property
    def lost(self) -> bool:
        """Whether its row was damaged on the disk: then it says so, and nothing else."""
        return self.text is LOST


# What a passage says whose row was damaged on the disk; known by identity, because anybody may store the same.
LOST = "".join(("[This passage is damaged on the disk ", "and cannot be shown.]"))


@dataclass(frozen=True, slots=True)
class NewPassage:
    """A passage to be stored; without a time of its own it is from now."""

    text: str
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    created_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class PassageQuery:
    """What to look for among passages. Without text they come by age, the newest first; both dates are inclusive."""

    text: str = ""
    limit: int = 5
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    since: Micros | None = None
    until: Micros | None = None
    oldest_first: bool = False
    mode: SearchMode = "hybrid"
