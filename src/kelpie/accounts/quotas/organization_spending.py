"""Spending API: sums over the steps of an organization, and the state of its agents' budgets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.ids import AgentId
from kelpie.core.permissions.budgets import Budget, Period, SpentAmount
from kelpie.core.permissions.spending import SpendingGroup, SpendingQuery, SpendingSum
from kelpie.core.time import Micros
from kelpie.storage.agents import agents
from kelpie.storage.runs.spending import agents_with_budget, spending_sums, spent_by_each
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
            found = agents_with_budget(tx, self._organization, after, limit)
            spent: dict[AgentId, SpentAmount] = {}
            for period in Period:  # the agents of a period have spent since the same time
                ids = [agent_id for agent_id, _, budget in found if budget.period is period]
                spent |= spent_by_each(tx, ids, Budget(period=period).begins(now))
            return [
                AgentBudget(agent_id, name, budget, spent.get(agent_id, SpentAmount()), budget.ends(now))
                for agent_id, name, budget in found
            ]

        return await self._database.read(read)
