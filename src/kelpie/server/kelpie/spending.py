"""Spending: of an agent, in total and of its budget; and of an organization by day, model and agent."""

from datetime import date, timedelta
from typing import Annotated, Any

from fastapi import Query

from kelpie.accounts.quotas.organization_spending import AgentBudget
from kelpie.core.ids import AgentId
from kelpie.core.permissions.budgets import MICROS_PER_DOLLAR, SpentAmount
from kelpie.core.permissions.spending import DAY, SpendingGroup, SpendingQuery, SpendingSum
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp
from kelpie.server.letta.agents.budget_body import budget_shape

router = resource("/kelpie/agents", "spending (Kelpie)")
sum_router = resource("/kelpie/spending", "spending (Kelpie)")
budget_router = resource("/kelpie/budgets", "spending (Kelpie)")

DAYS_MAX = 366
GROUPS_MAX = 1000
BUDGETS_MAX = 500
ZONE_MINUTES_MAX = 24 * 60
MODEL_CHARS_MAX = 1000
_EPOCH = date(1970, 1, 1)
_MINUTE = 60 * MICROS_PER_SECOND


@router.get("/{agent_id}/spending", summary="Get an agent's spending and budget (Kelpie)", response_model=None)
async def retrieve(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    found = await api.runs.spending(agent_id, api.world.clock.now())
    budget = budget_shape(found.budget)
    if budget is not None:
        budget |= {f"spent_{name}": value for name, value in _spent(found.of_budget).items()}
        budget |= {"frees_at": timestamp(found.frees_at), "used_up": found.used_up}
    return JsonAnswer({"agent_id": agent_id, **_spent(found.total), "budget": budget})


@sum_router.get("", summary="Get what was spent by day, model or agent (Kelpie)", response_model=None)
async def list_sums(
    api: CallerApi,
    by: Annotated[SpendingGroup, Query(description="`day`, `model` or `agent`.")] = SpendingGroup.day,
    days: Annotated[int, Query(ge=1, le=DAYS_MAX, description="Today and the days before it.")] = 30,
    utc_offset_minutes: Annotated[
        int,
        Query(ge=-ZONE_MINUTES_MAX, le=ZONE_MINUTES_MAX, description="Where a day begins: minutes east of UTC."),
    ] = 0,
    agent_id: Annotated[str | None, Query(description="Only this agent.")] = None,
    model: Annotated[str | None, Query(max_length=MODEL_CHARS_MAX, description="Only this model, by handle.")] = None,
    limit: Annotated[int, Query(ge=1, le=GROUPS_MAX, description="Maximum number of sums.")] = 400,
) -> JsonAnswer:
    zone = utc_offset_minutes * _MINUTE
    today = (api.world.clock.now() + zone) // DAY
    since = max(0, (today - days + 1) * DAY - zone)
    wanted = None if agent_id is None else AgentId.parse(agent_id)
    report = await api.spending.sums(SpendingQuery(by, since, limit, zone, wanted, model))

    def shape(each: SpendingSum) -> dict[str, Any]:
        if by is SpendingGroup.day:
            return {"day": (_EPOCH + timedelta(days=int(each.key))).isoformat(), **_spent(each.spent)}
        if by is SpendingGroup.model:
            return {"model": each.key or None, **_spent(each.spent)}
        return {"agent_id": each.key, "agent_name": report.names.get(each.key), **_spent(each.spent)}

    return await listed(report.sums, shape)


@budget_router.get("", summary="List the agents with a budget and what they spent of it (Kelpie)", response_model=None)
async def list_budgets(
    api: CallerApi,
    after: Annotated[str, Query(max_length=100, description="Return only agents after this id.")] = "",
    limit: Annotated[int, Query(ge=1, le=BUDGETS_MAX, description="Maximum number of agents.")] = 100,
) -> JsonAnswer:
    return await listed(await api.spending.budgets(api.world.clock.now(), after, limit), _budget)


def _budget(found: AgentBudget) -> dict[str, Any]:
    return {
        "agent_id": found.agent_id,
        "agent_name": found.name,
        **(budget_shape(found.budget) or {}),
        **{f"spent_{name}": value for name, value in _spent(found.spent).items()},
        "frees_at": timestamp(found.frees_at),
        "used_up": found.used_up,
    }


def _spent(spent: SpentAmount) -> dict[str, Any]:
    """The dollars are of the calls whose price is known; the number of the others stands beside them."""
    return {
        "usd": spent.micros / MICROS_PER_DOLLAR,
        "tokens": spent.tokens,
        "steps": spent.calls,
        "unpriced_calls": spent.unpriced_calls,
    }
