"""The jobs resource: long work that is not a turn."""

from typing import Annotated, Any

from fastapi import Query

from kelpie.core.conversations.jobs import Job, JobQuery, JobType
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import After, Before, Page100, limit_query, page_of
from kelpie.server.http.path_ids import JobPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp

router = resource("/jobs", "jobs")


def job_shape(job: Job) -> dict[str, Any]:
    return {
        "created_by_id": job.created_by_id,
        "last_updated_by_id": job.last_updated_by_id,
        "created_at": timestamp(job.created_at),
        "updated_at": timestamp(job.updated_at),
        "status": job.status,
        "completed_at": timestamp(job.completed_at),
        "stop_reason": job.stop_reason,
        "metadata": dict(job.metadata),
        "job_type": job.job_type,
        "background": job.background,
        "agent_id": job.agent_id,
        "callback_url": job.callback_url,
        "callback_sent_at": timestamp(job.callback_sent_at),
        "callback_status_code": job.callback_status_code,
        "callback_error": job.callback_error,
        "ttft_ns": job.ttft_ns,
        "total_duration_ns": job.total_duration_ns,
        "id": job.id,
    }


@router.get("/", summary="List jobs", response_model=None)
async def list_jobs(
    api: CallerApi,
    page: Page100,
    source_id: str | None = None,
    active: Annotated[bool, Query(description="Return only unfinished jobs.")] = False,
) -> JsonAnswer:
    return await listed(await api.jobs.page(JobQuery(page, source_id, active)), job_shape)


@router.get("/active", summary="List unfinished jobs", deprecated=True, response_model=None)
async def list_active_jobs(
    api: CallerApi,
    source_id: str | None = None,
    before: Before = None,
    after: After = None,
    limit: int | None = limit_query(50),
    ascending: bool = True,
) -> JsonAnswer:
    page = page_of(before, after, limit, "asc" if ascending else "desc")
    return await listed(await api.jobs.page(JobQuery(page, source_id, active=True)), job_shape)


@router.get("/{job_id}", summary="Get a job", response_model=None)
async def retrieve_job(api: CallerApi, job_id: JobPath) -> JsonAnswer:
    return JsonAnswer(job_shape(await api.jobs.get(job_id)))


@router.patch("/{job_id}/cancel", summary="Cancel a job", response_model=None)
async def cancel_job(api: CallerApi, job_id: JobPath) -> JsonAnswer:
    if (await api.jobs.get(job_id)).job_type is JobType.batch:
        return JsonAnswer(job_shape((await api.batches.cancel(None, job_id))[0]))
    return JsonAnswer(job_shape(await api.jobs.cancel(job_id)))


@router.delete("/{job_id}", summary="Delete a job", response_model=None)
async def delete_job(api: CallerApi, job_id: JobPath) -> JsonAnswer:
    return JsonAnswer(job_shape(await api.jobs.delete(job_id)))
