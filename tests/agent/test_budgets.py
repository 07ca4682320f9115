"""Budgets: held before every model call, counted by what was committed, and never in the way once there is room."""

import asyncio
from datetime import UTC, datetime

import pytest

from kelpie.agent.events.turn_events import TurnEnded
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import NewAgent
from kelpie.core.conversations.conversations import NewConversation
from kelpie.core.conversations.messages import NewMessage, Role, Text
from kelpie.core.conversations.runs import RunStatus, StopReason
from kelpie.core.errors import InvalidInput
from kelpie.core.permissions.budgets import Budget, Period, SpentAmount
from kelpie.core.time import from_datetime
from kelpie.storage.runs import steps
from tests.agent.conftest import MODEL, Rig, ended, rows, says

PRICE = f"{MODEL}=2/10"  # a call of 10 and 5 tokens costs 70 millionths


@pytest.fixture
async def priced(tmp_path):
    made = await Rig(tmp_path / "kelpie.db", model_prices=(PRICE,)).start()
    yield made
    await made.stop()


async def agent(rig: Rig, budget: Budget | None, **fields):
    return (await rig.kelpie.api().agents.create(NewAgent(name="a", budget=budget, **fields))).agent.id


async def spent(rig: Rig, agent_id) -> SpentAmount:
    return await rig.kelpie.world.database.read(lambda tx: steps.spent_by(tx, agent_id))


async def test_a_turn_is_refused_when_nothing_is_left_and_leaves_no_trace_in_the_history(priced: Rig):
    agent_id = await agent(priced, Budget(micros=140))
    for _ in range(2):
        assert ended(await priced.say(agent_id, "hi")).stop_reason is StopReason.end_turn
    assert await spent(priced, agent_id) == SpentAmount(140, 30, 2)
    asked = len(priced.model.requests)
    events = await priced.say(agent_id, "once more")
    end = ended(events)
    assert (end.stop_reason, end.detail, rows(events)) == (StopReason.insufficient_credits, "budget", [])
    assert end.budget is not None and end.error is None
    assert (end.budget["usd"], end.budget["spent_usd"], end.budget["frees_at"]) == (0.00014, 0.00014, None)
    assert "raise kelpie_budget" in end.budget["message"]
    run = await priced.kelpie.api().runs.get(end.run_id)
    assert run.status is RunStatus.failed and run.metadata["kelpie_budget"]["period"] == "total"
    assert len(priced.model.requests) == asked
    view = await priced.kelpie.api().agents.update(agent_id, {"budget": Budget(micros=1000)})
    assert view.agent.budget == Budget(micros=1000)
    assert ended(await priced.say(agent_id, "now?")).stop_reason is StopReason.end_turn
    await priced.kelpie.api().agents.update(agent_id, {"budget": None})
    assert ended(await priced.say(agent_id, "and now?")).stop_reason is StopReason.end_turn


async def test_it_ends_a_turn_in_the_middle_and_what_was_done_stays(priced: Rig):
    agent_id = await agent(priced, Budget(tokens=15))
    priced.model.script = [says("", ("conversation_search", {"query": "x"})), says("never asked")]
    events = await priced.say(agent_id, "look")
    assert ended(events).stop_reason is StopReason.insufficient_credits
    assert [row.role for row in rows(events)] == [Role.assistant, Role.tool]
    assert ended(events).usage.total_tokens == 15
    assert len(priced.model.requests) == 1


async def test_a_restart_forgets_nothing(tmp_path):
    rig = await Rig(tmp_path / "kelpie.db", model_prices=(PRICE,)).start()
    agent_id = await agent(rig, Budget(micros=70))
    await rig.say(agent_id, "hi")
    await rig.stop()
    rig = await rig.start()
    assert ended(await rig.say(agent_id, "again")).stop_reason is StopReason.insufficient_credits
    await rig.stop()


async def test_lanes_share_it_and_overshoot_by_no_more_than_what_is_in_flight(priced: Rig):
    agent_id = await agent(priced, Budget(tokens=15))
    doors = priced.kelpie.api()
    lanes = ["", *[(await doors.conversations.create(agent_id, NewConversation())).id for _ in range(2)]]
    priced.model.hold = asyncio.Event()
    said = (NewMessage(Role.user, (Text("hi"),)),)
    turns = [await priced.kelpie.api().sending.send(agent_id, SendRequest(said, conversation=lane)) for lane in lanes]
    while len(priced.model.requests) < len(lanes):  # noqa: ASYNC110 - all three are in flight before any ends
        await asyncio.sleep(0.01)
    priced.model.hold.set()
    ends = [[event async for event in turn.events()][-1] for turn in turns]
    assert all(isinstance(end, TurnEnded) and end.stop_reason is StopReason.end_turn for end in ends)
    again = [await priced.kelpie.api().sending.send(agent_id, SendRequest(said, conversation=lane)) for lane in lanes]
    ends = [[event async for event in turn.events()][-1] for turn in again]
    assert all(end.stop_reason is StopReason.insufficient_credits for end in ends)
    assert await spent(priced, agent_id) == SpentAmount(3 * 70, 45, 3)


async def test_money_needs_a_price(rig: Rig):
    with pytest.raises(InvalidInput, match="price of test/script is unknown"):
        await agent(rig, Budget(micros=1))
    agent_id = await agent(rig, Budget(tokens=1000))
    with pytest.raises(InvalidInput, match=r"kelpie_budget\.usd"):
        await rig.kelpie.api().agents.update(agent_id, {"budget": Budget(micros=1)})
    await rig.say(agent_id, "hi")
    assert await spent(rig, agent_id) == SpentAmount(0, 15, 1, unpriced_calls=1)


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    return from_datetime(datetime(year, month, day, hour, minute, tzinfo=UTC))


@pytest.mark.parametrize(
    ("period", "begins", "ends"),
    [
        (Period.total, 0, None),
        (Period.hour, at(2026, 12, 31, 23), at(2027, 1, 1)),
        (Period.day, at(2026, 12, 31), at(2027, 1, 1)),
        (Period.month, at(2026, 12, 1), at(2027, 1, 1)),
    ],
)
def test_periods_are_those_of_the_calendar(period: Period, begins: int, ends: int | None):
    budget, now = Budget(tokens=1, period=period), at(2026, 12, 31, 23, 59)
    assert (budget.begins(now), budget.ends(now)) == (begins, ends)


def test_a_short_month_ends_where_the_next_begins():
    assert Budget(tokens=1, period=Period.month).ends(at(2027, 2, 28)) == at(2027, 3, 1)
