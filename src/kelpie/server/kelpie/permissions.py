"""Permissions, limits and tool calls of an agent, and the tool policy of an organization."""

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict

from kelpie.core.ids import RunId
from kelpie.core.paging import PAGE_BYTES_MAX, Page
from kelpie.core.permissions.call_records import CallOutcome, CallQuery, CallRecord, ToolUsage
from kelpie.core.permissions.policies import Policy
from kelpie.core.permissions.quotas import cpu_seconds
from kelpie.core.tools.tools import ToolQuery
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp
from kelpie.server.letta.agents.permission_body import LimitsBody, PermitsBody, limits_shape, permits_shape
from kelpie.tools.registry.permissions import RegisteredTool

router = resource("/agents", "permissions (Kelpie)")
registry = resource("/kelpie", "permissions (Kelpie)")

LIMIT, LIMIT_MAX = 50, 1000
HOURS_MAX = 24 * 365
NUMBER_MAX = 2**62
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
Before = Annotated[
    int | None, Query(ge=0, le=NUMBER_MAX, description="Return only calls before the call with this number.")
]
ToolName = Annotated[str | None, Query(max_length=256, description="Return only calls of this tool.")]


class PolicyBody(BaseModel):
    """The tool policy for all agents of an organization; an omitted field sets no limit."""

    model_config = ConfigDict(extra="forbid")

    permissions: PermitsBody = PermitsBody(allow=None)
    limits: LimitsBody = LimitsBody()

    def policy(self) -> Policy:
        return Policy(self.permissions.permits("permissions"), self.limits.quota())


@router.get("/{agent_id}/permissions", summary="Get an agent's tool permissions (Kelpie)", response_model=None)
async def agent_permissions(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    found = await api.permissions.of_agent(agent_id)
    layers = {layer.value: permits_shape(policy.permits) for layer, policy in found.warrant.layers}
    return JsonAnswer(
        {
            "agent_id": agent_id,
            "kelpie_permissions": permits_shape(found.agent.permits),
            "layers": layers,
            "tools": [_registered(each) for each in found.tools],
        }
    )


@router.get("/{agent_id}/limits", summary="Get an agent's limits and usage (Kelpie)", response_model=None)
async def agent_limits(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    found = await api.permissions.limits(agent_id)
    return JsonAnswer(
        {
            "agent_id": agent_id,
            "limits": limits_shape(found.warrant.quota),
            "layers": {layer.value: limits_shape(policy.quota) for layer, policy in found.layers},
            "used": {
                "tool_calls": found.used.tool_calls,
                "tokens": found.spent.tokens,
                "cpu_seconds": cpu_seconds(found.used.cpu_us),
                "memory_peak_bytes": found.used.memory_peak_bytes,
            },
            "frees_at": timestamp(found.frees_at),
        }
    )


@router.get("/{agent_id}/tool-calls", summary="List an agent's tool calls (Kelpie)", response_model=None)
async def agent_calls(
    api: CallerApi,
    agent_id: AgentPath,
    limit: Limit = LIMIT,
    before: Before = None,
    tool: ToolName = None,
    outcome: CallOutcome | None = None,
    run_id: str | None = None,
) -> JsonAnswer:
    query = CallQuery(limit, before, tool, outcome, RunId.parse(run_id) if run_id is not None else None)
    return await listed(await api.permissions.calls(query, agent_id), call_shape)


@registry.get("/tools", summary="List tools with their capabilities and permissions (Kelpie)", response_model=None)
async def list_tools(
    api: CallerApi,
    limit: Limit = LIMIT,
    after: str | None = None,
    before: str | None = None,
    order: Literal["asc", "desc"] = "desc",
) -> JsonAnswer:
    found = await api.permissions.registry(
        ToolQuery(Page(limit, after, before, order == "desc", bytes_max=PAGE_BYTES_MAX))
    )
    return await listed(found, _registered)


@registry.get("/tools/usage", summary="Get the usage of each tool (Kelpie)", response_model=None)
async def tool_usage(api: CallerApi, hours: Annotated[int, Query(ge=1, le=HOURS_MAX)] = 24) -> JsonAnswer:
    return await listed(await api.permissions.usage(hours), usage_shape)


@registry.get("/tools/calls", summary="List the tool calls of all agents (Kelpie)", response_model=None)
async def list_calls(
    api: CallerApi,
    limit: Limit = LIMIT,
    before: Before = None,
    tool: ToolName = None,
    outcome: CallOutcome | None = None,
) -> JsonAnswer:
    calls = await api.permissions.calls(CallQuery(limit, before, tool, outcome))
    return await listed(calls, call_shape)


@registry.get("/policy", summary="Get the organization's tool policy (Kelpie)", response_model=None)
async def read_policy(api: CallerApi) -> JsonAnswer:
    return JsonAnswer(_policy(await api.permissions.policy(), api.permissions.server))


@registry.put("/policy", summary="Set the organization's tool policy (Kelpie)", response_model=None)
async def set_policy(api: CallerApi, body: PolicyBody) -> JsonAnswer:
    return JsonAnswer(_policy(await api.permissions.set_policy(body.policy()), api.permissions.server))


def _policy(policy: Policy, server: Policy) -> dict[str, Any]:
    return {
        "permissions": permits_shape(policy.permits),
        "limits": limits_shape(policy.quota),
        "version": policy.version,
        "server": {"permissions": permits_shape(server.permits), "limits": limits_shape(server.quota)},
    }


def _registered(each: RegisteredTool) -> dict[str, Any]:
    tool, subject, refusal = each.tool, each.subject, each.refusal
    return {
        "id": tool.id,
        "name": tool.name,
        "kind": subject.kind,
        "capabilities": list(subject.capabilities),
        "permitted": refusal is None,
        "refused_by": refusal.layer if refusal else None,
        "reason": refusal.reason if refusal else None,
    }


def call_shape(call: CallRecord) -> dict[str, Any]:
    return {
        "number": call.number,
        "agent_id": call.agent_id,
        "run_id": call.run_id,
        "step_id": call.step_id,
        "tool_call_id": call.call_id,
        "tool_id": call.tool_id,
        "tool": call.name,
        "kind": call.kind,
        "outcome": call.outcome,
        "reason": call.reason,
        "counted": call.counted,
        "duration_ms": call.took.duration_us / 1000,
        "cpu_ms": call.took.cpu_us / 1000,
        "memory_peak_bytes": call.took.memory_peak_bytes,
        "created_at": timestamp(call.created_at),
    }


def usage_shape(usage: ToolUsage) -> dict[str, Any]:
    return {
        "tool": usage.name,
        "kind": usage.kind,
        "calls": usage.calls,
        "errors": usage.errors,
        "refused": usage.refused,
        "duration_ms_mean": usage.duration_us / 1000 / usage.calls,
        "duration_ms_max": usage.duration_us_max / 1000,
        "cpu_ms": usage.cpu_us / 1000,
        "memory_peak_bytes": usage.memory_peak_bytes,
        "last_at": timestamp(usage.last_at),
    }
