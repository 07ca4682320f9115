"""Conversations: threads of one agent, each with a context of its own.

Every agent has one without a record, its default conversation; clients create the others, and these are their records.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kelpie.core.ids import AgentId, BlockId, ConversationId, MessageId
from kelpie.core.paging import Page
from kelpie.core.time import Micros


class ArchiveStatus(StrEnum):
    unarchived = "unarchived"
    archived = "archived"
    all = "all"


@dataclass(frozen=True, slots=True)
class Conversation:
    id: ConversationId
    agent_id: AgentId
    created_at: Micros
    updated_at: Micros
    summary: str | None = None
    description: str | None = None
    model: str | None = None
    model_settings: Mapping[str, Any] | None = None
    context_window_limit: int | None = None
    hidden: bool = False
    archived_at: Micros | None = None
    last_message_at: Micros | None = None
    isolated_block_ids: tuple[BlockId, ...] = ()
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
    version: int = 1


@dataclass(frozen=True, slots=True)
class NewConversation:
    """A conversation to create. `isolated_labels` are blocks of which it gets its own copy."""

    summary: str | None = None
    description: str | None = None
    model: str | None = None
    model_settings: Mapping[str, Any] | None = None
    context_window_limit: int | None = None
    hidden: bool = False
    isolated_labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConversationQuery:
    """Filter for a list of conversations. An unknown cursor is an error here, not the first page."""

    page: Page = Page()
    agent_id: AgentId | None = None
    summary_search: str | None = None
    archive_status: ArchiveStatus = ArchiveStatus.all
    show_hidden: bool = False


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Filter for the messages of a conversation; unknown cursors are ignored.

    Unlike in an agent's history, `descending` really lists the newest first. `after` continues the list in its order,
    `before` always means older; both together are what lies between them. Clients differ in what they mean: these
    readings are right for all that are known (docs/letta-compatibility.md).
    """

    limit: int = 100
    after: MessageId | None = None
    before: MessageId | None = None
    descending: bool = True
    group_id: str | None = None
    bytes_max: int | None = None  # the answer ends early where its messages have more
