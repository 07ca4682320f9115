"""What steps exchanged with their providers: the newest so many, each bounded in bytes, the rest forgotten.

A trace is written by the commit of its step, so it adds nothing to what a turn waits for. The oldest are dropped in
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
    """How many traces are kept, and how many bytes of a request or a response."""

    kept: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class NewTrace:
    """What a step exchanged, and how much of it is to be kept."""

    tracing: Tracing
    request: bytes
    response: bytes | None


_INSERT = insert(step_traces)
_DROP = delete(step_traces).where(step_traces.c.number <= bindparam("last"))
_ONE = select(step_traces).where(step_traces.c.step_id == bindparam("of_step"))


def add(tx: Tx, new: NewTrace, step_id: StepId, at: Micros) -> None:
    """Keeps what a step exchanged. Up to DROP_EVERY more than `kept` stay for a while."""
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
    """The trace of a step, if it is still kept."""
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
