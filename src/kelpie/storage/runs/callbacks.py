"""Scheduled callbacks: ended runs with an address to notify, the time of the next attempt, and its result.

A callback is scheduled by the commit that ends its run, so none is sent before and none is lost in a crash.
"""

from dataclasses import dataclass

from sqlalchemy import bindparam, select, update

from kelpie.core.ids import RunId
from kelpie.core.time import Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.tables import runs
from kelpie.world.database import Tx


@dataclass(frozen=True, slots=True)
class DueCallback:
    """One callback, and the number of its attempts."""

    run_id: RunId
    url: str
    attempts: int


_OWE = update(runs).where(runs.c.id == bindparam("of_run")).values(callback_due_at=bindparam("due"))
_DUE = (
    select(runs.c.id, runs.c.callback_url, runs.c.callback_attempts)
    .where(runs.c.callback_due_at <= bindparam("now"), row_ownership.of_present_agent(runs.c.agent_id))
    .order_by(runs.c.callback_due_at, runs.c.id)
    .limit(bindparam("most"))
)
_TRIED = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"))
    .values(
        callback_due_at=bindparam("due"),
        callback_attempts=runs.c.callback_attempts + 1,
        callback_sent_at=bindparam("tried_at"),
        callback_status_code=bindparam("new_code"),
        callback_error=bindparam("new_error"),
    )
)


def schedule(tx: Tx, run_id: RunId, at: Micros) -> None:
    """Schedules the callback of a run."""
    tx.execute(_OWE, {"of_run": run_id, "due": at})


def due(tx: Tx, now: Micros, most: int) -> list[DueCallback]:
    """Callbacks that are due, the longest due first."""
    rows = tx.execute(_DUE, {"now": now, "most": most})
    return [DueCallback(RunId(row.id), row.callback_url, row.callback_attempts) for row in rows]


def record_attempt(
    tx: Tx, run_id: RunId, at: Micros, status: int | None, error: str | None, again_at: Micros | None
) -> None:
    """Records an attempt; without `again_at` it was the last."""
    tx.execute(_TRIED, {"of_run": run_id, "due": again_at, "tried_at": at, "new_code": status, "new_error": error})
