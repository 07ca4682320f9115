"""Traces: requests of steps to their providers and the responses. Only the newest are stored, each bounded in bytes.

A trace is written by the commit of its step, so it adds nothing that a turn waits for. The oldest are deleted in
batches, by number, without being read.
"""

from dataclasses import dataclass

from sqlalchemy import bindparam, delete, insert, select

from kelpie.core.conversations.runs import Trace
from kelpie.core.ids import StepId
from kelpie.core.time import Micros
from kelpie.storage.tables import step_traces
from kelpie.world.database import Tx

DROP_EVERY = 64


@dataclass(frozen=True, slots=True)
class Tracing:
    """The number of stored traces, and the limit in bytes of a request or a response."""

    kept: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class NewTrace:
    """The exchange of a step, and how much of it to store."""

    tracing: Tracing
    request: bytes
    response: bytes | None


_INSERT = insert(step_traces)
_DROP = delete(step_traces).where(step_traces.c.number <= bindparam("last"))
_ONE = select(step_traces).where(step_traces.c.step_id == bindparam("of_step"))


def add(tx: Tx, new: NewTrace, step_id: StepId, at: Micros) -> None:
    """Stores the exchange of a step. Up to DROP_EVERY more than `kept` stay for a while."""
    most, request, response = new.tracing.bytes_max, new.request, new.response
    written = tx.execute(
        _INSERT,
        {
            "step_id": step_id,
            "request": request[:most],
            "request_bytes": len(request),
            "response": None if response is None else response[:most],
            "response_bytes": 0 if response is None else len(response),
            "created_at": at,
        },
    )
    key = written.inserted_primary_key
    number = 0 if key is None else int(key[0])
    if number % DROP_EVERY == 0:
        tx.execute(_DROP, {"last": number - new.tracing.kept})


def find(tx: Tx, step_id: StepId) -> Trace | None:
    """The trace of a step, if it is still stored."""
    row = tx.execute(_ONE, {"of_step": step_id}).first()
    if row is None:
        return None
    return Trace(
        step_id=StepId(row.step_id),
        number=row.number,
        created_at=row.created_at,
        request=row.request,
        request_bytes=row.request_bytes,
        response=row.response,
        response_bytes=row.response_bytes,
    )
