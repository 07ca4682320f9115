"""Spending API: sums over the steps of an organization, and the state of its agents' budgets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.ids import AgentId
from kelpie.core.permissions.budgets import Budget, SpentAmount
from kelpie.core.permissions.spending import SpendingGroup, SpendingQuery, SpendingSum
from kelpie.core.time import Micros
from kelpie.storage.agents import agents
from kelpie.storage.runs import steps
from kelpie.storage.runs.spending import agents_with_budget, spending_sums
from kelpie.world.database import Database, Tx


@dataclass(frozen=True, slots=True)
class SpendingReport:
    """Sums, with the names of the agents among them."""

    sums: Sequence[SpendingSum]
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AgentBudget:
    """The budget of an agent and what is spent of it in its current period."""

    agent_id: AgentId
    name: str
    budget: Budget
    spent: SpentAmount
    frees_at: Micros | None

    @property
    def used_up(self) -> bool:
        return self.spent.exceeds(self.budget)


class OrganizationSpending:
    """What the agents of the caller's organization spend."""

    def __init__(self, database: Database, caller: Caller = DEFAULT_CALLER) -> None:
        self._database = database
        self._organization = caller.organization_id

    async def sums(self, query: SpendingQuery) -> SpendingReport:
        def read(tx: Tx) -> SpendingReport:
            found = spending_sums(tx, self._organization, query)
            ids = [AgentId(each.key) for each in found] if query.by is SpendingGroup.agent else []
            return SpendingReport(found, {str(key): name for key, name in agents.names(tx, sorted(ids)).items()})

        return await self._database.read(read)

    async def budgets(self, now: Micros, after: str, limit: int) -> list[AgentBudget]:
        """Agents with a budget, in the order of their ids."""

        def read(tx: Tx) -> list[AgentBudget]:
            ids = agents_with_budget(tx, self._organization, after, limit)
            names = agents.names(tx, sorted(ids))
            return [_state(tx, each, names.get(each, ""), now) for each in ids]

        return await self._database.read(read)


def _state(tx: Tx, agent_id: AgentId, name: str, now: Micros) -> AgentBudget:
    budget = agents.get(tx, agent_id).budget
    assert budget is not None, "it was selected for its budget in this transaction"
    return AgentBudget(agent_id, name, budget, steps.spent_by(tx, agent_id, budget.begins(now)), budget.ends(now))
