"""Jobs as rows."""

from dataclasses import fields
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, bindparam, delete, insert, select, update

from kelpie.core.conversations.jobs import ACTIVE, Job, JobQuery, JobStatus, JobType
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, JobId, OrganizationId
from kelpie.core.time import Micros
from kelpie.storage.rows.paging import Paging
from kelpie.storage.tables import jobs
from kelpie.world.database import Tx

_C = jobs.c
_INSERT = insert(jobs)
_ALL_OF = select(jobs).where(_C.organization_id == bindparam("organization"))
_ONE = _ALL_OF.where(_C.id == bindparam("of_job"))
_DELETE = delete(jobs).where(_C.id == bindparam("of_job"))
_END = (
    update(jobs)
    .where(_C.id == bindparam("of_job"), _C.status.in_([status.value for status in ACTIVE]))
    .values(status=bindparam("new_status"), completed_at=bindparam("at"), updated_at=bindparam("at"))
    .values(last_updated_by_id=bindparam("by"))
)


def add(tx: Tx, job: Job, organization: OrganizationId) -> None:
    row = {field.name: getattr(job, field.name) for field in fields(Job)}
    tx.execute(_INSERT, row | {"organization_id": organization, "metadata": dict(job.metadata)})


def from_row(row: Row[Any]) -> Job:
    """A job from its row."""
    return Job(
        id=JobId(row.id),
        created_at=row.created_at,
        updated_at=row.updated_at,
        status=JobStatus(row.status),
        job_type=JobType(row.job_type),
        completed_at=row.completed_at,
        stop_reason=StopReason(row.stop_reason) if row.stop_reason else None,
        background=row.background,
        agent_id=AgentId(row.agent_id) if row.agent_id else None,
        source_id=row.source_id,
        metadata=row.metadata,
        callback_url=row.callback_url,
        callback_sent_at=row.callback_sent_at,
        callback_status_code=row.callback_status_code,
        callback_error=row.callback_error,
        ttft_ns=row.ttft_ns,
        total_duration_ns=row.total_duration_ns,
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
    )


def get(tx: Tx, organization: OrganizationId, job_id: JobId) -> Job:
    """Raises NotFound."""
    row = tx.execute(_ONE, {"organization": organization, "of_job": job_id}).first()
    if row is None:
        raise NotFound("Job", job_id)
    return from_row(row)


def remove(tx: Tx, job_id: JobId) -> None:
    tx.execute(_DELETE, {"of_job": job_id})


def end(tx: Tx, job_id: JobId, status: JobStatus, at: Micros, by: str | None) -> bool:
    """Ends a running job; False when it had ended before."""
    bound = {"of_job": job_id, "new_status": status.value, "at": at, "by": by}
    return tx.execute(_END, bound).rowcount == 1


_PAGES = Paging(jobs, "created_at")
_FILTERS: dict[str, ColumnElement[bool]] = {
    "source_id": _C.source_id == bindparam("source_id"),
    "active": _C.status.in_([status.value for status in ACTIVE]),
}


@lru_cache(maxsize=4)
def _matching(names: tuple[str, ...]) -> Select[Any]:
    return _ALL_OF.where(*(_FILTERS[name] for name in names))


def select_jobs(tx: Tx, organization: OrganizationId, query: JobQuery) -> list[Job]:
    given = {"source_id": query.source_id, "active": query.active or None}
    used = {name: value for name, value in given.items() if value is not None}
    rows = _PAGES.rows(
        tx,
        _matching(tuple(used)),
        query.page,
        {"organization": organization, **used},
        within={"organization_id": organization},
    )
    return [from_row(row) for row in rows]
