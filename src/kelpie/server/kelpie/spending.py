"""Spending of an agent, in total and of its budget."""

from typing import Any

from kelpie.core.permissions.budgets import MICROS_PER_DOLLAR, SpentAmount
from kelpie.server.http.caller_api import CallerApi
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.router import resource
from kelpie.server.http.times import timestamp
from kelpie.server.letta.agents.budget_body import budget_shape

router = resource("/kelpie/agents", "spending (Kelpie)")


@router.get("/{agent_id}/spending", summary="Get an agent's spending and budget (Kelpie)", response_model=None)
async def retrieve(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    found = await api.runs.spending(agent_id, api.world.clock.now())
    budget = budget_shape(found.budget)
    if budget is not None:
        budget |= {f"spent_{name}": value for name, value in _spent(found.of_budget).items()}
        budget |= {"frees_at": timestamp(found.frees_at), "used_up": found.used_up}
    return JsonAnswer({"agent_id": agent_id, **_spent(found.total), "budget": budget})


def _spent(spent: SpentAmount) -> dict[str, Any]:
    """The dollars are of the calls whose price is known; the number of the others stands beside them."""
    return {
        "usd": spent.micros / MICROS_PER_DOLLAR,
        "tokens": spent.tokens,
        "steps": spent.calls,
        "unpriced_calls": spent.unpriced_calls,
    }
