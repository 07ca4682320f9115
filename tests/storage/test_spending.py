"""What models have used in the last day, as a starting server counts it: added up by hour, no more than needed."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.dialects import postgresql

from kelpie.core.conversations.messages import Usage
from kelpie.core.conversations.runs import Step, StepStatus
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, OrganizationId, RunId, StepId
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.storage.runs import steps
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

HOUR = 3600 * MICROS_PER_SECOND
OTHERS = OrganizationId("org-00000000-0000-4000-8000-000000000009")
RUN = RunId("run-00000000-0000-4000-8000-000000000001")
AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        connection.execute(text("PRAGMA foreign_keys = OFF"))
        create_schema(connection)
        yield connection


def spend(tx: Tx, number: int, at: int, handle: str | None, tokens: int, owner: OrganizationId) -> None:
    step_id = StepId(f"step-00000000-0000-4000-8000-{number:012}")
    used = Usage(tokens, 2 * tokens, 3 * tokens, cached_input_tokens=1, cost_micros=7 * tokens)
    steps.add(tx, Step(step_id, RUN, AGENT, at, StepStatus.success, model_handle=handle, usage=used), owner)


def test_it_is_added_up_by_hour_and_model_of_each_organisation(tx: Tx) -> None:
    assert steps.spent_since(tx, 0) == []
    given = [
        (HOUR - 1, "openai/a", 1000, DEFAULT_ORGANIZATION),
        (5 * HOUR, "openai/a", 1, DEFAULT_ORGANIZATION),
        (5 * HOUR + 7, "openai/a", 10, OTHERS),
        (5 * HOUR + 8, "ollama/b", 100, OTHERS),
        (6 * HOUR, "openai/a", 5, OTHERS),
        (6 * HOUR, None, 0, DEFAULT_ORGANIZATION),
    ]
    for number, (at, handle, tokens, owner) in enumerate(given):
        spend(tx, number, at, handle, tokens, owner)
    assert steps.spent_since(tx, HOUR) == [
        (DEFAULT_ORGANIZATION, "openai/a", 6 * HOUR, 7),
        (OTHERS, "ollama/b", 6 * HOUR, 700),
        (OTHERS, "openai/a", 6 * HOUR, 70),
        (DEFAULT_ORGANIZATION, "", 7 * HOUR, 0),
        (OTHERS, "openai/a", 7 * HOUR, 35),
    ]


def test_no_step_is_read_that_does_not_count(tx: Tx) -> None:
    asked = steps._SPENT.params(since=0).compile(tx, compile_kwargs={"literal_binds": True})
    plan = [row[3] for row in tx.execute(text(f"EXPLAIN QUERY PLAN {asked}"))]
    assert any("organization_id=? AND created_at>?" in line for line in plan), plan
    assert not [line for line in plan if line.startswith("SCAN steps") and "COVERING INDEX" not in line], plan


def test_postgresql_can_be_asked_the_same() -> None:
    sql = str(steps._SPENT.compile(dialect=postgresql.dialect()))
    assert "WITH RECURSIVE" in sql and "->>" in sql
