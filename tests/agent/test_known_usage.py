"""What is known in memory of an agent's spending and calls: never counted twice, never from before a commit, never of
another period."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kelpie.agent.live import spending
from kelpie.agent.live.live_agent import LiveAgent
from kelpie.agent.live.spending import BudgetExhausted, calls_used, check_budget, record_usage
from kelpie.core.access.callers import DEFAULT_ORGANIZATION
from kelpie.core.conversations.messages import Usage
from kelpie.core.conversations.runs import Step, StepStatus
from kelpie.core.errors import ModelError, StorageBusy
from kelpie.core.ids import RunId, StepId
from kelpie.core.permissions.budgets import Budget, SpentAmount
from kelpie.core.permissions.call_records import CallOutcome, CallRecord, ResourceUse
from kelpie.core.permissions.policies import OPEN, EffectivePermissions
from kelpie.core.permissions.quotas import Quota, QuotaUse
from kelpie.llm.routing.models import Models
from kelpie.storage.runs import steps, tool_calls
from kelpie.world.database import Database, Tx
from tests.agent.test_live_agent import AGENT, agent, live_agent

HOUR = 3600 * 1_000_000
NOW = 5 * HOUR + 7


def step(at: int, tokens: int = 10) -> Step:
    usage = Usage(total_tokens=tokens, cost_micros=2)
    return Step(StepId("step-1"), RunId("run-1"), AGENT, at, StepStatus.success, usage=usage)


def call(at: int, *, counted: bool = True) -> CallRecord:
    took = ResourceUse(1, 100, 50)
    return CallRecord(DEFAULT_ORGANIZATION, "look", None, CallOutcome.success, at, AGENT, took=took, counted=counted)


class Records:
    """What is stored, by the period that is asked for; `beside` happens while it is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spent: dict[int, SpentAmount] = {}
        self.used: dict[int, QuotaUse] = {}
        self.asked: list[int] = []
        self.beside: Callable[[], None] = lambda: None
        monkeypatch.setattr(steps, "spent_by", lambda _tx, _agent, since: self._found(self.spent, since))
        monkeypatch.setattr(tool_calls, "used_by", lambda _tx, _agent, since: self._found(self.used, since))

    def _found(self, of: dict[int, Any], since: int) -> Any:
        self.asked.append(since)
        return of[since]

    async def read(self, fn: Callable[[Tx], Any]) -> Any:
        found = fn(cast(Tx, None))
        self.beside()
        return found

    @property
    def database(self) -> Database:
        return cast(Database, self)


MODELS = cast(Models, SimpleNamespace(prices=SimpleNamespace(of=lambda _handle: None)))


async def held(records: Records, live: LiveAgent, budget: Budget | None, hourly: int | None, now: int = NOW) -> str:
    """What stands in the way of a step."""
    permissions = OPEN if hourly is None else EffectivePermissions(quota=Quota(tokens=hourly))
    try:
        await check_budget(records.database, MODELS, live, agent(budget=budget), permissions, now)
    except BudgetExhausted as error:
        return error.detail
    return ""


async def test_budget_and_hourly_limit_are_known_side_by_side_and_the_next_period_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live, records = live_agent(), Records(monkeypatch)
    records.spent = {0: SpentAmount(0, 90), 5 * HOUR: SpentAmount(0, 20), 6 * HOUR: SpentAmount(0, 0)}
    budget = Budget(tokens=100)
    for _ in range(3):
        assert await held(records, live, budget, 30) == ""
    assert records.asked == [0, 5 * HOUR], "both stay known"
    record_usage(live, live.usage_reads, step(NOW))
    assert await held(records, live, budget, 31) == "budget" and await held(records, live, None, 30) == "limit"
    assert await held(records, live, None, 31) == "" and records.asked == [0, 5 * HOUR]
    assert await held(records, live, None, 30, NOW + HOUR) == "", "a new hour"
    assert records.asked == [0, 5 * HOUR, 6 * HOUR] and len(live.spent) <= spending.PERIODS_MAX


async def test_a_step_counts_only_in_the_periods_that_it_is_in() -> None:
    live = live_agent()
    live.spent = {0: SpentAmount(), 5 * HOUR: SpentAmount(), 6 * HOUR: SpentAmount()}
    for at in (5 * HOUR - 1, 5 * HOUR, NOW):
        record_usage(live, 0, step(at))
    assert [live.spent[since].calls for since in (0, 5 * HOUR, 6 * HOUR)] == [3, 2, 0]
    assert live.spent[0] == SpentAmount(6, 30, 3) and live.recorded == 3


async def test_a_call_counts_only_in_its_hour_and_refused_ones_use_nothing() -> None:
    live = live_agent()
    live.calls_used = (5 * HOUR, QuotaUse(1, 10, 70))
    record_usage(live, 0, None, [call(5 * HOUR - 1), call(5 * HOUR), call(NOW, counted=False)])
    assert live.calls_used == (5 * HOUR, QuotaUse(2, 210, 70))
    assert live.recorded == 1, "who reads beside it must read again, though no step was taken"
    record_usage(live, 0, None)
    assert live.recorded == 1
    record_usage(live, 0, None, None)
    assert live.calls_used is None and live.recorded == 2


async def test_what_another_turn_has_read_during_a_commit_is_not_counted_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live, records = live_agent(), Records(monkeypatch)
    reads = live.usage_reads
    records.spent, records.used = {0: SpentAmount(2, 10, 1)}, {5 * HOUR: QuotaUse(1, 100, 50)}  # with this very step
    assert await held(records, live, Budget(tokens=11), None) == ""
    record_usage(live, reads, step(NOW))
    assert live.spent == {} and await held(records, live, Budget(tokens=11), None) == ""
    reads = live.usage_reads
    assert await calls_used(records.database, live, NOW) == QuotaUse(1, 100, 50)
    record_usage(live, reads, None, [call(NOW)])
    assert live.calls_used is None and await calls_used(records.database, live, NOW) == QuotaUse(1, 100, 50)


async def test_what_was_read_before_another_commit_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    live, records = live_agent(), Records(monkeypatch)
    records.spent, records.used = {0: SpentAmount(0, 10)}, {5 * HOUR: QuotaUse(1)}

    def commits() -> None:
        records.beside = lambda: None
        record_usage(live, live.usage_reads, step(NOW), [call(NOW)])
        records.spent, records.used = {0: SpentAmount(0, 20)}, {5 * HOUR: QuotaUse(2)}

    records.beside = commits
    assert await held(records, live, Budget(tokens=20), None) == "budget"
    records.spent, records.used, live.calls_used = {0: SpentAmount(0, 10)}, {5 * HOUR: QuotaUse(1)}, None
    records.beside = commits
    assert await calls_used(records.database, live, NOW) == QuotaUse(2)
    asked = len(records.asked)
    assert await calls_used(records.database, live, NOW) == QuotaUse(2) and len(records.asked) == asked
    records.used = {6 * HOUR: QuotaUse()}
    assert await calls_used(records.database, live, NOW + HOUR) == QuotaUse()


async def test_records_that_never_stand_still_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    live, records = live_agent(), Records(monkeypatch)
    records.spent, records.used = {0: SpentAmount()}, {5 * HOUR: QuotaUse()}
    records.beside = live.invalidate_usage
    with pytest.raises(StorageBusy, match=r"spending of agent-.* kept changing"):
        await held(records, live, Budget(tokens=20), None)
    with pytest.raises(StorageBusy, match=r"tool usage of agent-.* kept changing"):
        await calls_used(records.database, live, NOW)
    assert len(records.asked) == 2 * spending.READS_MAX


async def test_money_is_limited_only_for_models_with_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    live, records = live_agent(), Records(monkeypatch)
    records.spent = {0: SpentAmount(5, 5)}
    with pytest.raises(ModelError, match="price of test/plain is unknown"):
        await held(records, live, Budget(micros=10), None)
    assert await held(records, live, Budget(tokens=6), None) == ""


async def test_who_has_used_it_up_is_told_when_it_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    live, records = live_agent(), Records(monkeypatch)
    records.spent = {5 * HOUR: SpentAmount(7, 30)}
    permissions = EffectivePermissions(quota=Quota(tokens=30))
    with pytest.raises(BudgetExhausted) as ended:
        await check_budget(records.database, MODELS, live, agent(), permissions, NOW)
    told = dict(ended.value.report)
    assert "raise the limit: kelpie_limits" in told.pop("message") and ended.value.detail == "limit"
    assert told == {
        "usd": None,
        "spent_usd": 0.000007,
        "tokens": 30,
        "spent_tokens": 30,
        "period": "hour",
        "frees_at": "1970-01-01T06:00:00+00:00",
    }
