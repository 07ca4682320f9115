"""What an agent has spent, in all and of its budget."""

from typing import Any

from kelpie.core.permissions.budgets import MICROS_PER_DOLLAR, Spent
from kelpie.server.http.caller_api import House
from kelpie.server.http.json_answer import Answer
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.router import resource
from kelpie.server.http.times import timestamp
from kelpie.server.letta.agents.budget_body import budget_shape

router = resource("/kelpie/agents", "spending (Kelpie)")


@router.get(
    "/{agent_id}/spending", summary="What an agent has spent, in all and of its budget (Kelpie)", response_model=None
)
async def retrieve(kelpie: House, agent_id: AgentPath) -> Answer:
    found = await kelpie.runs.spending(agent_id, kelpie.world.clock.now())
    budget = budget_shape(found.budget)
    if budget is not None:
        budget |= {f"spent_{name}": value for name, value in _spent(found.of_budget).items()}
        budget |= {"frees_at": timestamp(found.frees_at), "used_up": found.used_up}
    return Answer({"agent_id": agent_id, **_spent(found.total), "budget": budget})


def _spent(spent: Spent) -> dict[str, Any]:
    """The dollars are of the calls whose price is known; how many others there are stands beside them."""
    return {
        "usd": spent.micros / MICROS_PER_DOLLAR,
        "tokens": spent.tokens,
        "steps": spent.calls,
        "unpriced_calls": spent.unpriced_calls,
    }
