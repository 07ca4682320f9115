"""The events of background runs as rows, in the order in which they were emitted. A row is a batch and never changes.

An append names the piece of its segment that it brings; stored events are skipped, so a batch whose commit was in doubt
can simply be written again. Only the owner of the agent appends, behind the fence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, insert, select

from kelpie.core.ids import RunId
from kelpie.core.time import Micros
from kelpie.storage.tables import run_events, runs
from kelpie.world.database import Tx

SWEEP_ROWS = 200  # deleted in one transaction at most
TO_THE_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Batch:
    number: int
    events: tuple[dict[str, Any], ...]


_LAST = (
    select(run_events.c.number, run_events.c.segment, run_events.c.upto)
    .where(run_events.c.run_id == bindparam("of_run"))
    .order_by(run_events.c.number.desc())
    .limit(1)
)
_INSERT = insert(run_events)


def append(
    tx: Tx,
    run_id: RunId,
    segment: str,
    first: int,
    events: Sequence[dict[str, Any]],
    at: Micros,
    closing: Sequence[dict[str, Any]] = (),
) -> None:
    """Adds the events of a segment from its `first` on, without the stored ones; `closing` ends the segment."""
    last = tx.execute(_LAST, {"of_run": run_id}).first()
    known = last.upto if last is not None and last.segment == segment else 0
    new = [*events[max(0, known - first) :], *closing]
    if not new or known == TO_THE_END:
        return
    tx.execute(
        _INSERT,
        {
            "run_id": run_id,
            "number": 1 if last is None else last.number + 1,
            "segment": segment,
            "upto": TO_THE_END if closing else first + len(events),
            "events": new,
            "created_at": at,
        },
    )


_AFTER = (
    select(run_events.c.number, run_events.c.events)
    .where(run_events.c.run_id == bindparam("of_run"), run_events.c.number > bindparam("after"))
    .order_by(run_events.c.number)
    .limit(bindparam("most"))
)


def after(tx: Tx, run_id: RunId, number: int, most: int) -> list[Batch]:
    """The batches after this one, oldest first."""
    rows = tx.execute(_AFTER, {"of_run": run_id, "after": number, "most": most})
    return [Batch(row.number, tuple(row.events)) for row in rows]


_NEWEST = (
    select(run_events.c.events)
    .where(run_events.c.run_id == bindparam("of_run"))
    .order_by(run_events.c.number.desc())
    .limit(1)
)


def newest(tx: Tx, run_id: RunId) -> tuple[dict[str, Any], ...]:
    """The last batch; empty when there is none."""
    return tuple(tx.execute(_NEWEST, {"of_run": run_id}).scalar() or ())


_EXPIRED = (
    select(run_events.c.run_id, run_events.c.number)
    .join(runs, runs.c.id == run_events.c.run_id)
    .where(run_events.c.created_at < bindparam("before"), runs.c.completed_at < bindparam("before"))
    .limit(bindparam("most"))
)
_DELETE = delete(run_events).where(
    run_events.c.run_id == bindparam("of_run"), run_events.c.number == bindparam("of_number")
)


def needs_cleanup(tx: Tx, before: Micros) -> bool:
    """Checks whether there are events of runs that ended before this time."""
    return tx.execute(_EXPIRED, {"before": before, "most": 1}).first() is not None


def clean_up(tx: Tx, before: Micros) -> None:
    """Deletes a piece of them."""
    found = tx.execute(_EXPIRED, {"before": before, "most": SWEEP_ROWS}).all()
    if found:
        tx.execute(_DELETE, [{"of_run": row.run_id, "of_number": row.number} for row in found])
