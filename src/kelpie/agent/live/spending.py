"""An agent's budget and limits against what its steps and calls have used, as the activation holds it for all lanes.

It is asked before every model call and reads the record only when it does not know: at first, in a new period, and
after doubts. Every committed step is booked, so the calls that are in flight when the budget is used up are the most
that can be spent beyond it. An agent without a budget or limits never comes here.
"""

from collections.abc import Sequence
from typing import Any

from kelpie.agent.live.live_agent import LiveAgent, LiveConversation
from kelpie.core.conversations.runs import Step
from kelpie.core.errors import KelpieError, ModelError, ModelFault, StorageBusy
from kelpie.core.permissions.budgets import MICROS_PER_DOLLAR, Budget, SpentAmount
from kelpie.core.permissions.call_records import CallRecord
from kelpie.core.permissions.policies import EffectivePermissions
from kelpie.core.permissions.quotas import QuotaUse, hour_of
from kelpie.core.time import Micros, as_datetime
from kelpie.llm.routing.models import Models
from kelpie.storage.runs import steps, tool_calls
from kelpie.world.database import Database

READS_MAX = 8  # of the record, should other lanes keep writing to it
DETAIL, LIMIT = "budget", "limit"  # our words beside the stop reason
PERIODS_MAX = 2  # that are known at once: of the budget, and of the limit


class BudgetExhausted(KelpieError):
    """The agent's budget is used up; the turn ends before the model is asked."""

    def __init__(self, budget: Budget, spent: SpentAmount, now: Micros, detail: str = DETAIL) -> None:
        self.told = _told(budget, spent, now, detail)
        self.detail = detail
        super().__init__(self.told["message"])


async def afford(
    database: Database,
    models: Models,
    hot: LiveAgent,
    lane: LiveConversation,
    bounds: EffectivePermissions,
    now: Micros,
) -> None:
    """Raises Exhausted; ModelError when money is bounded and the model's price is not known; StorageError."""
    budget, hourly = lane.agent.budget, bounds.quota.budget
    if budget is not None:
        handle = lane.agent.model.handle
        if budget.micros is not None and models.prices.of(handle) is None:
            raise ModelError(
                ModelFault.bad_request,
                f"The price of {handle} is unknown, so the agent's budget cannot be enforced.",
                hint=f"Add '{handle}=input/output' (dollars per million tokens) to KELPIE_MODEL_PRICES.",
            )
        await _hold(database, hot, budget, now, DETAIL)
    if hourly is not None:
        await _hold(database, hot, hourly, now, LIMIT)


async def _hold(database: Database, hot: LiveAgent, budget: Budget, now: Micros, detail: str) -> None:
    spent = await _spent(database, hot, budget.begins(now))
    if spent.exceeds(budget):
        raise BudgetExhausted(budget, spent, now, detail)


async def _spent(database: Database, hot: LiveAgent, since: Micros) -> SpentAmount:
    agent_id = hot.claim.agent_id
    for _ in range(READS_MAX):
        if since in hot.purse:
            return hot.purse[since]
        booked = hot.booked
        found = await database.read(lambda tx: steps.spent_by(tx, agent_id, since))
        if hot.booked == booked:  # else another lane has committed a step that may not be in what was read
            if len(hot.purse) >= PERIODS_MAX:
                hot.purse.clear()
            hot.purse[since] = found
    raise StorageBusy(f"The spending of {agent_id} kept changing while it was read. Send the message again.")


async def metered(database: Database, hot: LiveAgent, now: Micros) -> QuotaUse:
    """What the agent's calls have used in the running hour. Raises StorageError."""
    agent_id, since = hot.claim.agent_id, hour_of(now)
    for _ in range(READS_MAX):
        if hot.meter is not None and hot.meter[0] == since:
            return hot.meter[1]
        booked = hot.booked
        found = await database.read(lambda tx: tool_calls.used_by(tx, agent_id, since))
        if hot.booked == booked:
            hot.meter = (since, found)
    raise StorageBusy(f"The tool usage of {agent_id} kept changing while it was read. Send the message again.")


def book(hot: LiveAgent, step: Step | None, calls: Sequence[CallRecord] | None = ()) -> None:
    """Counts a step and calls whose commit has returned; of calls that nobody knows any more (None) all are counted
    again."""
    if calls is None:
        hot.uncount()
    if step is None and not calls:
        return
    hot.booked += 1
    if step is not None:
        for since in hot.purse:
            if step.created_at >= since:
                hot.purse[since] += steps.spent_in(step)
    if hot.meter is not None and calls:
        since, used = hot.meter
        hot.meter = (since, sum((call.used for call in calls if call.created_at >= since), used))


def _told(budget: Budget, spent: SpentAmount, now: Micros, detail: str) -> dict[str, Any]:
    """What a client is told of it: the budget, what was spent of it, when it is free again, and what to do."""
    frees_at = budget.ends(now)
    frees = None if frees_at is None else as_datetime(frees_at).isoformat()
    when = "It is not renewed." if frees is None else f"It is renewed at {frees}."
    message = f"The agent's budget is used up. {when} To continue now, raise kelpie_budget of the agent."
    if detail == LIMIT:
        message = (
            f"The agent has used up its tokens for this hour. It can continue at {frees}. To continue now, raise the "
            "limit: kelpie_limits of the agent, its organization's policy, or the server's settings."
        )
    return {
        "usd": None if budget.micros is None else budget.micros / MICROS_PER_DOLLAR,
        "spent_usd": spent.micros / MICROS_PER_DOLLAR,
        "tokens": budget.tokens,
        "spent_tokens": spent.tokens,
        "period": budget.period.value,
        "frees_at": frees,
        "message": message,
    }
