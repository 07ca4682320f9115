"""Batches: many messages for agents in one request. A batch is a job; each of its items becomes a run of its own."""

from dataclasses import dataclass
from enum import StrEnum

from kelpie.core.ids import AgentId, ConversationId, JobId, OrganizationId, RunId
from kelpie.core.time import MICROS_PER_SECOND, Micros

ITEMS_MAX = 100  # of a batch for one agent
REQUESTS_MAX = 1_000  # of a batch for several agents
PARALLEL_MAX = 5  # items of a batch that run at once, each in its own fork
AGENTS_MAX = 25  # agents of a batch that have an item at a time; each has one, so that its items keep their order
ACTIVE_MAX = 100  # batches of an organization that have not ended
UNSENT = 24 * 3600 * MICROS_PER_SECOND  # an item that no agent took within this time has failed
KEPT = 30 * 24 * 3600 * MICROS_PER_SECOND  # a batch that has ended
PARALLEL, CANCELLED, TOTAL = "parallel", "cancel_requested", "total"  # in the metadata of its job


class ItemStatus(StrEnum):
    waiting = "waiting"  # for its turn, for room in the queue of its agent, or for a quota
    running = "running"  # its run is stored
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"


OPEN = (ItemStatus.waiting, ItemStatus.running)


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One item. `error` says why it failed or what it waits for."""

    batch_id: JobId
    place: int
    organization_id: OrganizationId
    agent_id: AgentId
    status: ItemStatus
    updated_at: Micros
    conversation_id: ConversationId | None = None  # None: the agent's default conversation
    run_id: RunId | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Numbers of the items of a batch."""

    total: int
    completed: int
    failed: int
    cancelled: int

    @property
    def percentage(self) -> int:
        """Share of the items that have ended."""
        return 100 * (self.completed + self.failed + self.cancelled) // max(self.total, 1)
