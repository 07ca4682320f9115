"""The record of calls, page by page: in the order of time, and without reading what somebody else has called."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, OrganizationId, RunId
from kelpie.core.permissions.call_records import CallOutcome, CallQuery, CallRecord
from kelpie.storage.runs import tool_calls
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

OTHERS = OrganizationId("org-00000000-0000-4000-8000-000000000009")
ANN, BEN = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{number}") for number in (1, 2))
RUN = RunId("run-00000000-0000-4000-8000-000000000001")
TIMES = (10, 20, 20, 5, 30)  # a clock that was set back in between


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        connection.execute(text("PRAGMA foreign_keys = OFF"))
        create_schema(connection)
        for number, at in enumerate(TIMES):
            for organization, agent in ((DEFAULT_ORGANIZATION, ANN), (OTHERS, BEN)):
                name = f"{agent[-1]}-{number}"
                call = CallRecord(
                    organization, name, None, CallOutcome.success, at, agent, RUN, reason=name, counted=True
                )
                tool_calls.add(connection, [call])
        yield connection


def pages(tx: Tx, agent_id: AgentId | None, limit: int) -> list[list[str]]:
    found, before = list[list[str]](), None
    while page := tool_calls.select_calls(tx, DEFAULT_ORGANIZATION, CallQuery(limit, before), agent_id):
        found.append([call.name for call in page])
        before = page[-1].number
    return found


@pytest.mark.parametrize("agent_id", [None, ANN])
def test_pages_follow_each_other_and_nothing_is_shown_twice_or_left_out(tx: Tx, agent_id: AgentId | None) -> None:
    assert pages(tx, agent_id, 2) == [["1-4", "1-2"], ["1-1", "1-0"], ["1-3"]]
    assert pages(tx, BEN, 2) == []


def test_behind_a_call_that_is_gone_come_those_with_lower_numbers(tx: Tx) -> None:
    tx.execute(text("DELETE FROM tool_calls WHERE number = 9"))
    assert [call.reason for call in tool_calls.select_calls(tx, DEFAULT_ORGANIZATION, CallQuery(9, 9))] == [
        "1-2", "1-1", "1-0", "1-3",
    ]  # fmt: skip


def test_use_since_a_moment_includes_the_calls_of_that_very_moment(tx: Tx) -> None:
    for since in (*TIMES, 0, 15, 31):
        expected = sum(at >= since for at in TIMES)
        assert tool_calls.used_by(tx, ANN, since).tool_calls == expected, since


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ((), "organization_id=?"),
        (("before_at",), "organization_id=? AND created_at<?"),
        (("agent_id", "outcome"), "agent_id=?"),
        (("agent_id", "before_at"), "agent_id=? AND created_at<?"),
        (("agent_id", "run_id"), "run_id=?"),
    ],
)
def test_no_more_is_read_than_what_is_asked_about(tx: Tx, filters: tuple[str, ...], index: str) -> None:
    given = {
        "organization": "o",
        "agent_id": "a",
        "run_id": "r",
        "outcome": "x",
        "before": 5,
        "before_at": 6,
        "most": 5,
    }
    asked = tool_calls._query(filters).compile(tx)
    values = {**asked.construct_params(given)}
    plan = tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}", tuple(values[name] for name in asked.positiontup or ()))
    told = [row[3] for row in plan if "removed_agents" not in row[3]]  # which is looked up by its key
    assert f"({index})" in told[0], told
    assert len(told) == 1 or "run_id" in filters, told
