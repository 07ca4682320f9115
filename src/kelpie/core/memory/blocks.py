"""Memory blocks: named texts in an agent's prompt."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kelpie.core.ids import DEFAULT_ORGANIZATION, BlockId, OrganizationId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.core.token_estimates import BYTES_PER_TOKEN

DEFAULT_LIMIT = 100_000
VERSIONS_KEPT = 100
CONTEXT_BYTES = 32 * 1024
_WINDOW = 128_000  # tokens; a larger window leaves room for more memory
_SHARE = 4  # of a window that memory may fill, at most one part in so many


@dataclass(frozen=True, slots=True)
class BlockRules:
    """The server's settings for the blocks of all agents."""

    limit: int = DEFAULT_LIMIT  # characters of a block that names no limit
    versions_kept: int = VERSIONS_KEPT  # of each block
    context_bytes: int = CONTEXT_BYTES  # of all blocks in one prompt, before the window is looked at

    def budget(self, window: int) -> int:
        """Limit in bytes on all blocks of an agent with this context window; it grows with the window."""
        return min(max(self.context_bytes, self.context_bytes * window // _WINDOW), window * BYTES_PER_TOKEN // _SHARE)


DEFAULT_RULES = BlockRules()


@dataclass(frozen=True, slots=True)
class Block:
    id: BlockId
    label: str
    value: str
    created_at: Micros
    updated_at: Micros
    limit: int = DEFAULT_LIMIT
    description: str | None = None
    read_only: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tags: tuple[str, ...] = ()
    hidden: bool | None = None
    project_id: str | None = None
    template_name: str | None = None
    is_template: bool = False
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    preserve_on_migration: bool = False
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
    version: int = 1

    @property
    def lost(self) -> bool:
        """True if the row was damaged on the disk: the block then contains that notice and nothing else."""
        return self.value is LOST


# Value of a block whose row was damaged on the disk; compared by identity, because a client may write the same text.
LOST = "".join(("[This block is damaged on the disk ", "and cannot be shown.]"))


@dataclass(frozen=True, slots=True)
class NewBlock:
    """A block to create; ids and times are assigned at creation."""

    label: str
    value: str = ""
    limit: int | None = None  # None: the server's default
    description: str | None = None
    read_only: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tags: tuple[str, ...] = ()
    hidden: bool | None = None
    project_id: str | None = None
    template_name: str | None = None
    is_template: bool = False
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    preserve_on_migration: bool = False


@dataclass(frozen=True, slots=True)
class BlockQuery:
    """Filter for a list of blocks."""

    page: Page = Page()
    label: str | None = None
    name: str | None = None  # template_name
    templates_only: bool = False
    label_search: str | None = None
    description_search: str | None = None
    value_search: str | None = None
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    project_id: str | None = None
    connected_count_gt: int | None = None
    connected_count_lt: int | None = None
    connected_count_eq: tuple[int, ...] = ()
    identity_id: str | None = None
    identifier_keys: tuple[str, ...] = ()
    show_hidden: bool = False
