"""Traces are bounded in number and in bytes, whatever comes."""

import pytest
from sqlalchemy import func, select

from kelpie.core.ids import StepId
from kelpie.storage.runs.traces import DROP_EVERY, NewTrace, Tracing, add, find
from kelpie.storage.tables import metadata, step_traces
from kelpie.world.sqlite.connections import memory_connection


def step(number: int) -> StepId:
    return StepId(f"step-00000000-0000-4000-8000-{number:012d}")


@pytest.mark.parametrize("kept", [1, 10, 100])
def test_only_the_newest_are_kept(kept: int) -> None:
    tx = memory_connection()
    tx.exec_driver_sql("PRAGMA foreign_keys = OFF")
    metadata.create_all(tx)
    new = NewTrace(Tracing(kept, 10), b"a" * 25, b"b" * 5)
    for number in range(1, 401):
        add(tx, new, step(number), number)
        count = tx.execute(select(func.count()).select_from(step_traces)).scalar_one()
        assert count <= kept + DROP_EVERY
        trace = find(tx, step(number))
        assert trace is not None and (trace.request, trace.request_bytes) == (b"a" * 10, 25)
        assert (trace.response, trace.response_bytes, trace.created_at) == (b"b" * 5, 5, number)
    assert find(tx, step(1)) is None
    assert all(find(tx, step(number)) for number in range(401 - kept, 401))
