"""Traces: requests of steps to their providers and the responses. Only the newest are stored, each bounded in bytes.

The oldest are deleted by number, without being read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, delete, func, select

from kelpie.core.conversations.runs import Trace
from kelpie.core.ids import StepId
from kelpie.core.time import Micros
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.tables import step_traces, steps
from kelpie.world.database import Tx


@dataclass(frozen=True, slots=True)
class Tracing:
    """The number of stored traces, and the limit in bytes of a request or a response."""

    kept: int
    bytes_max: int

    def trace(self, step_id: StepId, at: Micros, request: bytes, response: bytes | None) -> Trace:
        """As much of the exchange of a step as is stored."""
        return Trace(
            step_id=step_id,
            created_at=at,
            request=request[: self.bytes_max],
            request_bytes=len(request),
            response=None if response is None else response[: self.bytes_max],
            response_bytes=0 if response is None else len(response),
        )


_INSERT = Insert(step_traces)
_DROP = delete(step_traces).where(
    step_traces.c.number <= select(func.max(step_traces.c.number)).scalar_subquery() - bindparam("kept")
)
_ONE = select(step_traces).where(step_traces.c.step_id == bindparam("of_step"))
_UNTRACED = (
    select(steps.c.id)
    .outerjoin(step_traces, step_traces.c.step_id == steps.c.id)
    .where(steps.c.id.in_(bindparam("ids", expanding=True)), step_traces.c.step_id.is_(None))
)


def add(tx: Tx, new: Sequence[Trace], kept: int) -> None:
    """Stores traces, the oldest first, and deletes older ones. A step that has one already, or is gone, is skipped."""
    untraced = set(tx.execute(_UNTRACED, {"ids": [trace.step_id for trace in new]}).scalars())
    if rows := [_to_row(trace) for trace in new if trace.step_id in untraced]:
        _INSERT.run(tx, rows)
        tx.execute(_DROP, {"kept": kept})


def _to_row(trace: Trace) -> dict[str, object]:
    return {
        "step_id": trace.step_id,
        "request": trace.request,
        "request_bytes": trace.request_bytes,
        "response": trace.response,
        "response_bytes": trace.response_bytes,
        "created_at": trace.created_at,
    }


def find(tx: Tx, step_id: StepId) -> Trace | None:
    """The trace of a step, if it is stored."""
    row = tx.execute(_ONE, {"of_step": step_id}).first()
    if row is None:
        return None
    return Trace(
        step_id=StepId(row.step_id),
        created_at=row.created_at,
        request=row.request,
        request_bytes=row.request_bytes,
        response=row.response,
        response_bytes=row.response_bytes,
    )
