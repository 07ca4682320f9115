"""Usage of organizations for their administrators, and quotas, which only the operator sets."""

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kelpie.accounts.quotas.organization_usage import UsageReport
from kelpie.core.permissions.organization_limits import LIMIT_MAX
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.path_ids import OrganizationPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource

router = resource("/kelpie/usage", "usage (Kelpie)")
quota_router = resource("/kelpie/quotas", "usage (Kelpie)")


class Quotas(BaseModel):
    model_config = ConfigDict(extra="forbid")

    requests_per_minute: int | None = Field(None, ge=0, le=LIMIT_MAX, description="Requests in a minute.")
    agents: int | None = Field(None, ge=0, le=LIMIT_MAX, description="Agents.")
    messages: int | None = Field(None, ge=0, le=LIMIT_MAX, description="Stored messages.")
    files: int | None = Field(None, ge=0, le=LIMIT_MAX, description="Files in folders.")
    stored_mb: int | None = Field(None, ge=0, le=LIMIT_MAX, description="MB of stored texts and JSON.")
    disk_mb: int | None = Field(None, ge=0, le=LIMIT_MAX, description="MB of files in workspaces.")


@router.get("", summary="Get the usage and quotas of the own organization (Kelpie)", response_model=None)
async def own_usage(api: CallerApi) -> JsonAnswer:
    return JsonAnswer(usage_shape(await api.usage.get()))


@router.get("/{organization_id}", summary="Get the usage and quotas of an organization (Kelpie)", response_model=None)
async def usage(api: CallerApi, organization_id: OrganizationPath) -> JsonAnswer:
    return JsonAnswer(usage_shape(await api.usage.get(organization_id)))


@router.post(
    "/{organization_id}/recount",
    summary="Count what an organization stores again and correct its counters; for the operator (Kelpie)",
    response_model=None,
)
async def recount(api: CallerApi, organization_id: OrganizationPath) -> JsonAnswer:
    corrected = await api.usage.recount(organization_id)
    return JsonAnswer({"corrected_by": asdict(corrected), **usage_shape(await api.usage.get(organization_id))})


@quota_router.put(
    "/{organization_id}",
    summary="Set the quotas of one organization; a missing one is the server's; for the operator (Kelpie)",
    response_model=None,
)
async def set_quotas(api: CallerApi, organization_id: OrganizationPath, body: Quotas) -> JsonAnswer:
    return JsonAnswer(usage_shape(await api.usage.set_limits(organization_id, body.model_dump(exclude_none=True))))


def usage_shape(report: UsageReport) -> dict[str, Any]:
    return {
        "organization_id": report.organization,
        "usage": {
            "requests_this_minute": report.requests,
            "agents": report.used.agents,
            "messages": report.used.messages,
            "files": report.used.files,
            "stored_bytes": report.used.bytes,
            "disk_bytes": report.disk_bytes,
        },
        "quotas": asdict(report.limits),
        "own_quotas": dict(report.own),
    }
