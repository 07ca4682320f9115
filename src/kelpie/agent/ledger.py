"""An agent's budget against what its steps have used, as the activation holds it for all its lanes.

It is asked before every model call and reads the record only when it does not know: at first, in a new period, and
after doubts. Every committed step is booked, so the calls that are in flight when the budget is used up are the most
that can be spent beyond it. An agent without a budget never comes here.
"""

from typing import Any

from kelpie.agent.lanes import Hot, Lane
from kelpie.core.budgets import MICROS_PER_DOLLAR, Budget, Spent
from kelpie.core.errors import KelpieError, ModelError, ModelFault, StorageBusy
from kelpie.core.runs import Step
from kelpie.core.time import Micros, as_datetime
from kelpie.llm.models import Models
from kelpie.storage import steps
from kelpie.world.database import Database

READS_MAX = 8  # of the record, should other lanes keep writing to it
DETAIL = "budget"  # our word beside the stop reason


class Exhausted(KelpieError):
    """The agent's budget is used up; the turn ends before the model is asked."""

    def __init__(self, budget: Budget, spent: Spent, now: Micros) -> None:
        self.told = _told(budget, spent, now)
        super().__init__(self.told["message"])


async def afford(database: Database, models: Models, hot: Hot, lane: Lane, now: Micros) -> None:
    """Raises Exhausted; ModelError when money is bounded and the model's price is not known; StorageError."""
    budget = lane.agent.budget
    assert budget is not None
    handle = lane.agent.model.handle
    if budget.micros is not None and models.prices.of(handle) is None:
        raise ModelError(
            ModelFault.bad_request,
            f"No price of {handle} is known, so its cost cannot be held to the agent's budget.",
            hint=f"Add '{handle}=input/output' (dollars per million tokens) to KELPIE_MODEL_PRICES.",
        )
    spent = await _spent(database, hot, budget.begins(now))
    if spent.exceeds(budget):
        raise Exhausted(budget, spent, now)


async def _spent(database: Database, hot: Hot, since: Micros) -> Spent:
    agent_id = hot.claim.agent_id
    for _ in range(READS_MAX):
        if hot.purse is not None and hot.purse[0] == since:
            return hot.purse[1]
        booked = hot.booked
        found = await database.read(lambda tx: steps.spent_by(tx, agent_id, since))
        if hot.booked == booked:  # else another lane has committed a step that may not be in what was read
            hot.purse = (since, found)
    raise StorageBusy(f"What {agent_id} has spent changed faster than it could be read. Send it again.")


def book(hot: Hot, step: Step | None) -> None:
    """Counts a step whose commit has returned."""
    if step is None:
        return
    hot.booked += 1
    if hot.purse is not None and step.created_at >= hot.purse[0]:
        since, spent = hot.purse
        hot.purse = (since, spent + steps.spent_in(step))


def _told(budget: Budget, spent: Spent, now: Micros) -> dict[str, Any]:
    """What a client is told of it: the budget, what was spent of it, when it is free again, and what to do."""
    frees_at = budget.ends(now)
    frees = None if frees_at is None else as_datetime(frees_at).isoformat()
    when = "it does not fill up again" if frees is None else f"it is full again at {frees}"
    return {
        "usd": None if budget.micros is None else budget.micros / MICROS_PER_DOLLAR,
        "spent_usd": spent.micros / MICROS_PER_DOLLAR,
        "tokens": budget.tokens,
        "spent_tokens": spent.tokens,
        "period": budget.period.value,
        "frees_at": frees,
        "message": f"The agent's budget is used up; {when}. Raise kelpie_budget of the agent to go on at once.",
    }
