"""Memory blocks: named pieces of text that stand in an agent's prompt."""

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
    """What the server's settings say about the blocks of all agents."""

    limit: int = DEFAULT_LIMIT  # characters of a block that names no limit
    versions_kept: int = VERSIONS_KEPT  # of each block
    context_bytes: int = CONTEXT_BYTES  # of all blocks in one prompt, before the window is looked at

    def budget(self, window: int) -> int:
        """The bytes that an agent with this window may fill with its blocks: more in a large one, less in a small."""
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
        """Whether its row was damaged on the disk: then it says so, and nothing else."""
        return self.value is LOST


# What a block says whose row was damaged on the disk; known by identity, because anybody may write the same.
LOST = "".join(("[This block is damaged on the disk ", "and cannot be shown.]"))


@dataclass(frozen=True, slots=True)
class NewBlock:
    """A block to be made; ids and times are given when it is."""

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
    """Which blocks to list."""

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
