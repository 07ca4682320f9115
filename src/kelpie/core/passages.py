"""Passages of archival memory, and what may be looked for among them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kelpie.core.ids import DEFAULT_ORGANIZATION, ArchiveId, OrganizationId, PassageId
from kelpie.core.time import Micros


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


@dataclass(frozen=True, slots=True)
class PassageQuery:
    """What to look for in an archive. Without text, the newest come first; both dates are inclusive."""

    text: str = ""
    limit: int = 5
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    since: Micros | None = None
    until: Micros | None = None

    def takes(self, passage: Passage) -> bool:
        """Whether the passage passes every filter; the text is the index's business."""
        if self.since is not None and passage.created_at < self.since:
            return False
        if self.until is not None and passage.created_at > self.until:
            return False
        if not self.tags:
            return True
        return (all if self.match_all_tags else any)(tag in passage.tags for tag in self.tags)
