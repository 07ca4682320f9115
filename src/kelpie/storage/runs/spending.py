"""Sums over the steps of an organization: what was spent by day, by model and by agent; and the agents with budgets."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, bindparam, func, select

from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.permissions.budgets import Budget, SpentAmount
from kelpie.core.permissions.spending import DAY, SpendingGroup, SpendingQuery, SpendingSum
from kelpie.core.time import Micros
from kelpie.storage.accounts.row_ownership import of_present_agent
from kelpie.storage.agents.columns import budget_from_json
from kelpie.storage.tables import agents, steps
from kelpie.world.database import Tx

_MICROS = func.coalesce(func.sum(steps.c.usage["cost_micros"].as_integer()), 0).label("micros")
_TOKENS = func.coalesce(func.sum(steps.c.usage["total_tokens"].as_integer()), 0).label("tokens")
_UNPRICED = func.coalesce(func.sum(steps.c.usage["unpriced_calls"].as_integer()), 0).label("unpriced_calls")
_KEYS: dict[SpendingGroup, Any] = {
    SpendingGroup.day: ((steps.c.created_at + bindparam("zone")) // DAY).label("key"),
    SpendingGroup.model: steps.c.model_handle.label("key"),
    SpendingGroup.agent: steps.c.agent_id.label("key"),
}


def _sums(by: SpendingGroup, of_agent: bool, of_model: bool) -> Select[Any, Any, Any, Any, Any]:
    key = _KEYS[by]
    found = select(key, _MICROS, _TOKENS, func.count().label("calls"), _UNPRICED).where(
        steps.c.organization_id == bindparam("organization"),
        steps.c.created_at >= bindparam("since"),
        of_present_agent(steps.c.agent_id),
    )
    if of_agent:
        found = found.where(steps.c.agent_id == bindparam("of_agent"))
    if of_model:
        found = found.where(steps.c.model_handle == bindparam("of_model"))
    order = (key.desc(),) if by is SpendingGroup.day else (_MICROS.desc(), _TOKENS.desc(), key)
    return found.group_by(key).order_by(*order).limit(bindparam("most"))


_STATEMENTS = {
    (by, of_agent, of_model): _sums(by, of_agent, of_model)
    for by in SpendingGroup
    for of_agent in (False, True)
    for of_model in (False, True)
}


def spending_sums(tx: Tx, organization: OrganizationId, query: SpendingQuery) -> list[SpendingSum]:
    """Days newest first; models and agents with the highest cost first."""
    statement = _STATEMENTS[query.by, query.agent_id is not None, query.model is not None]
    bound: dict[str, Any] = {"organization": organization, "since": query.since, "most": query.limit}
    if query.by is SpendingGroup.day:
        bound["zone"] = query.zone
    if query.agent_id is not None:
        bound["of_agent"] = query.agent_id
    if query.model is not None:
        bound["of_model"] = query.model
    return [
        SpendingSum(
            str(row.key if row.key is not None else ""),
            SpentAmount(int(row.micros), int(row.tokens), int(row.calls), int(row.unpriced_calls)),
        )
        for row in tx.execute(statement, bound)
    ]


_WITH_BUDGET = (
    select(agents.c.id, agents.c.name, agents.c.budget)
    .where(
        agents.c.organization_id == bindparam("organization"),
        agents.c.id > bindparam("after"),
        agents.c.budget["period"].as_string().is_not(None),
    )
    .order_by(agents.c.id)
    .limit(bindparam("most"))
)


def agents_with_budget(
    tx: Tx, organization: OrganizationId, after: str, limit: int
) -> list[tuple[AgentId, str, Budget]]:
    """The agents that have a budget, with their names, in the order of their ids."""
    rows = tx.execute(_WITH_BUDGET, {"organization": organization, "after": after, "most": limit})
    found = ((AgentId(row.id), row.name, budget_from_json(row.budget)) for row in rows)
    return [(agent_id, name, budget) for agent_id, name, budget in found if budget is not None]


_OF_AGENTS = (
    select(steps.c.agent_id, _MICROS, _TOKENS, func.count().label("calls"), _UNPRICED)
    .where(steps.c.agent_id.in_(bindparam("of_agents", expanding=True)), steps.c.created_at >= bindparam("since"))
    .group_by(steps.c.agent_id)
)


def spent_by_each(tx: Tx, agent_ids: Sequence[AgentId], since: Micros) -> dict[AgentId, SpentAmount]:
    """The usage of the steps of these agents since then; an agent without steps is missing."""
    rows = tx.execute(_OF_AGENTS, {"of_agents": list(agent_ids), "since": since}) if agent_ids else ()
    return {
        AgentId(row.agent_id): SpentAmount(int(row.micros), int(row.tokens), int(row.calls), int(row.unpriced_calls))
        for row in rows
    }
