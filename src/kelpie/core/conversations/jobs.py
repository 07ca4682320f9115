"""Jobs: the record of long work that is not a turn. The code that does the work updates its job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kelpie.core.conversations.runs import StopReason
from kelpie.core.ids import AgentId, JobId
from kelpie.core.paging import Page
from kelpie.core.time import Micros


class JobStatus(StrEnum):
    created = "created"
    pending = "pending"
    running = "running"
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"
    expired = "expired"


ACTIVE = (JobStatus.created, JobStatus.pending, JobStatus.running)


class JobType(StrEnum):
    job = "job"
    run = "run"
    batch = "batch"


@dataclass(frozen=True, slots=True)
class Job:
    id: JobId
    created_at: Micros
    updated_at: Micros
    status: JobStatus = JobStatus.created
    job_type: JobType = JobType.job
    completed_at: Micros | None = None
    stop_reason: StopReason | None = None
    background: bool | None = None
    agent_id: AgentId | None = None
    source_id: str | None = None  # the folder it reads for
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    callback_url: str | None = None
    callback_sent_at: Micros | None = None
    callback_status_code: int | None = None
    callback_error: str | None = None
    ttft_ns: int | None = None
    total_duration_ns: int | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Filter for a list of jobs."""

    page: Page = Page(limit=100)
    source_id: str | None = None
    active: bool = False
