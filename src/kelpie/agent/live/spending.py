"""Budget check: an agent's budget and limits against what its steps and calls have used, in memory for one agent.

It runs before every model call and reads the stored records only when the usage is not known: at first, in a new
period, and after a commit of unknown outcome. Every committed step is recorded, so the calls that are in flight when
the budget is used up are the most that can be spent beyond it. Agents without a budget or limits are never checked.
"""

from collections.abc import Sequence
from typing import Any

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.agent.live.live_agent import LiveAgent
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.runs import Step
from kelpie.core.errors import KelpieError, ModelError, ModelFault, QuotaExceeded, StorageBusy
from kelpie.core.ids import OrganizationId
from kelpie.core.permissions.budgets import MICROS_PER_DOLLAR, Budget, SpentAmount
from kelpie.core.permissions.call_records import CallRecord
from kelpie.core.permissions.policies import EffectivePermissions
from kelpie.core.permissions.quotas import QuotaUse, hour_of
from kelpie.core.time import Micros, as_datetime
from kelpie.llm.routing.models import Models
from kelpie.storage.runs import steps, tool_calls
from kelpie.world.database import Database

READS_MAX = 8  # of the records, should other turns keep writing to them
DETAIL, LIMIT, QUOTA = "budget", "limit", "quota"  # details beside the stop reason
PERIODS_MAX = 2  # that are known at once: of the budget, and of the limit


class BudgetExhausted(KelpieError):
    """The agent's budget is used up; the turn ends before the model is asked."""

    def __init__(self, budget: Budget, spent: SpentAmount, now: Micros, detail: str = DETAIL) -> None:
        self.report = _report(budget, spent, now, detail)
        self.detail = detail
        super().__init__(self.report["message"])


class StorageQuotaReached(BudgetExhausted):
    """The agent's organization has no room for further messages; the turn ends before the model is asked."""

    def __init__(self, error: QuotaExceeded) -> None:
        self.report = {"message": str(error), "quota": error.quota}
        self.detail = QUOTA
        KelpieError.__init__(self, str(error))


async def check_storage(database: Database, quotas: Quotas, organization: OrganizationId) -> None:
    """Raises StorageQuotaReached, StorageError."""
    limits = quotas.limits(organization)
    if limits.messages or limits.stored_mb:
        try:
            await database.read(lambda tx: quotas.require_room(tx, organization))
        except QuotaExceeded as error:
            raise StorageQuotaReached(error) from error


async def check_budget(
    database: Database,
    models: Models,
    live: LiveAgent,
    agent: Agent,
    permissions: EffectivePermissions,
    now: Micros,
) -> None:
    """Raises BudgetExhausted; ModelError when money is limited and the model's price is not known; StorageError."""
    budget, hourly = agent.budget, permissions.quota.budget
    if budget is not None:
        handle = agent.model.handle
        if budget.micros is not None and models.prices.of(handle) is None:
            raise ModelError(
                ModelFault.bad_request,
                f"The price of {handle} is unknown, so the agent's budget cannot be enforced.",
                hint=f"Add '{handle}=input/output' (dollars per million tokens) to KELPIE_MODEL_PRICES.",
            )
        await _hold(database, live, budget, now, DETAIL)
    if hourly is not None:
        await _hold(database, live, hourly, now, LIMIT)


async def _hold(database: Database, live: LiveAgent, budget: Budget, now: Micros, detail: str) -> None:
    spent = await _spent(database, live, budget.begins(now))
    if spent.exceeds(budget):
        raise BudgetExhausted(budget, spent, now, detail)


async def _spent(database: Database, live: LiveAgent, since: Micros) -> SpentAmount:
    agent_id = live.claim.agent_id
    for _ in range(READS_MAX):
        if since in live.spent:
            return live.spent[since]
        recorded = live.recorded
        found = await database.read(lambda tx: steps.spent_by(tx, agent_id, since))
        if live.recorded == recorded:  # else another turn has committed a step that may be missing
            if len(live.spent) >= PERIODS_MAX:
                live.spent.clear()
            live.spent[since] = found
            live.usage_reads += 1
    raise StorageBusy(f"The spending of {agent_id} kept changing while it was read. Send the message again.")


async def calls_used(database: Database, live: LiveAgent, now: Micros) -> QuotaUse:
    """Usage of the agent's calls in the current hour. Raises StorageError."""
    agent_id, since = live.claim.agent_id, hour_of(now)
    for _ in range(READS_MAX):
        if live.calls_used is not None and live.calls_used[0] == since:
            return live.calls_used[1]
        recorded = live.recorded
        found = await database.read(lambda tx: tool_calls.used_by(tx, agent_id, since))
        if live.recorded == recorded:
            live.calls_used = (since, found)
            live.usage_reads += 1
    raise StorageBusy(f"The tool usage of {agent_id} kept changing while it was read. Send the message again.")


def record_usage(
    live: LiveAgent, reads_before: int, step: Step | None, calls: Sequence[CallRecord] | None = ()
) -> None:
    """Counts a step and calls whose commit has returned; None means that the calls are not known: all are read
    again.

    `reads_before` is `live.usage_reads` from before the commit. Usage that another lane has read since may contain the
    commit or not, so it is read again too: counted twice, it would stop the agent early.
    """
    if calls is None or live.usage_reads != reads_before:
        live.invalidate_usage()
    if step is None and not calls:
        return
    live.recorded += 1
    if step is not None:
        for since in live.spent:
            if step.created_at >= since:
                live.spent[since] += steps.spent_in(step)
    if live.calls_used is not None and calls:
        since, used = live.calls_used
        live.calls_used = (since, sum((call.used for call in calls if call.created_at >= since), used))


def _report(budget: Budget, spent: SpentAmount, now: Micros, detail: str) -> dict[str, Any]:
    """The report for the client: the budget, what was spent of it, when it is free again, and what to do."""
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
