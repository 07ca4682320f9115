"""Archives, the passages in them, and queries for passages.

An agent writes to and reads from at most one archive; an archive may serve many agents, or none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kelpie.core.dates.date_mentions import Mention
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
    """An archive to create; id and times are assigned at creation."""

    name: str
    description: str | None = None
    embedding: str | None = None
    embedding_chunk_size: int = CHUNK_SIZE


@dataclass(frozen=True, slots=True)
class ArchiveQuery:
    """Filter for a list of archives."""

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
    batch_id: str | None = None  # the file or batch it came with; the passages before and after it are its context
    position: int | None = None  # in that
    vector: bytes | None = field(default=None, compare=False, repr=False)  # 32-bit floats, if it was just embedded

    @property
    def lost(self) -> bool:
        """True if the row was damaged on the disk: the passage then contains that notice and nothing else."""
        return self.text is LOST


# Text of a passage whose row was damaged on the disk; compared by identity, because a client may store the same text.
LOST = "".join(("[This passage is damaged on the disk ", "and cannot be shown.]"))


@dataclass(frozen=True, slots=True)
class NewPassage:
    """A passage to store; without a time of its own it gets the current time."""

    text: str
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    created_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class PassageQuery:
    """Search among passages. Without text they are sorted by age, the newest first; both dates are inclusive."""

    text: str = ""
    limit: int = 5
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    since: Micros | None = None
    until: Micros | None = None
    oldest_first: bool = False
    mode: SearchMode = "hybrid"
    mentions: tuple[Mention, ...] = ()  # the dates in the text: passages of that time are better matches
