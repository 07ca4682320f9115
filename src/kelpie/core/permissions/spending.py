"""Spending of an organization, added up by day, by model or by agent."""

from dataclasses import dataclass
from enum import StrEnum

from kelpie.core.ids import AgentId
from kelpie.core.permissions.budgets import SpentAmount
from kelpie.core.time import MICROS_PER_SECOND, Micros

DAY = 24 * 3600 * MICROS_PER_SECOND


class SpendingGroup(StrEnum):
    day = "day"
    model = "model"
    agent = "agent"


@dataclass(frozen=True, slots=True)
class SpendingQuery:
    """Which steps are added up, and into which sums. `zone` is the reader's distance from UTC."""

    by: SpendingGroup
    since: Micros
    limit: int
    zone: Micros = 0
    agent_id: AgentId | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class SpendingSum:
    """One sum: `key` is the day (counted from 1970 in the reader's zone), the handle of a model, or the id of an
    agent."""

    key: str
    spent: SpentAmount
