"""Traces are bounded in number and in bytes, whatever comes."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, func, select

from kelpie.core.conversations.runs import Trace
from kelpie.core.ids import StepId
from kelpie.storage.runs.traces import Tracing, add, find
from kelpie.storage.tables import metadata, step_traces, steps
from kelpie.world.sqlite.connections import memory_connection


def step(number: int) -> StepId:
    return StepId(f"step-00000000-0000-4000-8000-{number:012d}")


def trace(number: int, tracing: Tracing) -> Trace:
    return tracing.trace(step(number), number, b"a" * 25, b"b" * 5)


def stored(tx: Connection) -> int:
    return tx.execute(select(func.count()).select_from(step_traces)).scalar_one()


@pytest.fixture
def tx() -> Iterator[Connection]:
    opened = memory_connection()
    opened.exec_driver_sql("PRAGMA foreign_keys = OFF")
    metadata.create_all(opened)
    for number in range(1, 201):
        row = {"id": step(number), "run_id": "run", "agent_id": "agent", "organization_id": "org", "status": "success"}
        opened.execute(steps.insert(), row | {"usage": {}, "tags": [], "created_at": number})
    yield opened
    opened.close()


@pytest.mark.parametrize("kept", [1, 10, 100])
def test_only_the_newest_are_kept(tx: Connection, kept: int) -> None:
    tracing = Tracing(kept, 10)
    for number in range(1, 201):
        add(tx, [trace(number, tracing)], kept)
        assert stored(tx) == min(number, kept)
        found = find(tx, step(number))
        assert found is not None and (found.request, found.request_bytes) == (b"a" * 10, 25)
        assert (found.response, found.response_bytes, found.created_at) == (b"b" * 5, 5, number)
    assert find(tx, step(200 - kept)) is None
    assert all(find(tx, step(number)) for number in range(201 - kept, 201))


def test_of_many_at_once_the_newest_are_kept(tx: Connection) -> None:
    add(tx, [trace(number, Tracing(10, 10)) for number in range(1, 51)], 10)
    assert stored(tx) == 10 and all(find(tx, step(number)) for number in range(41, 51))


def test_a_step_that_is_gone_or_has_its_trace_already_is_skipped(tx: Connection) -> None:
    tracing = Tracing(10, 10)
    add(tx, [trace(1, tracing)], 10)
    add(tx, [trace(1, tracing), trace(999, tracing), trace(2, tracing)], 10)
    assert stored(tx) == 2 and find(tx, step(1)) and find(tx, step(2)) and find(tx, step(999)) is None
