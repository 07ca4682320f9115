"""Scheduled callbacks: ended runs and batches with an address to notify, the time of the next attempt, and its result.

A callback is scheduled by the commit that ends its run or batch, so none is sent before and none is lost in a crash.
"""

from dataclasses import dataclass

from sqlalchemy import Table, Update, bindparam, func, select, update

from kelpie.core.access.consumers import Consumer
from kelpie.core.ids import JobId, RunId
from kelpie.core.time import Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.tables import jobs, runs
from kelpie.world.database import Tx
from kelpie.world.statements import Prepared


@dataclass(frozen=True, slots=True)
class DueCallback:
    """One callback, and the number of its attempts."""

    of: RunId | JobId
    url: str
    attempts: int
    consumer: Consumer


_OWE = update(runs).where(runs.c.id == bindparam("of_run")).values(callback_due_at=bindparam("due"))
_R = runs.c
_OLDEST = (_R.callback_due_at, _R.id)
# Each agent's callbacks by age, then each organization's: the first of every agent, the second of every agent, and on.
_BY_AGENT = (
    select(
        _R.id,
        _R.callback_url,
        _R.callback_attempts,
        _R.callback_due_at,
        _R.agent_id,
        _R.organization_id,
        func.row_number().over(partition_by=_R.agent_id, order_by=_OLDEST).label("turn"),
    )
    .where(_R.callback_due_at <= bindparam("now"), row_ownership.of_present_agent(_R.agent_id))
    .subquery()
)
_A = _BY_AGENT.c
_BY_ORGANIZATION = select(
    _BY_AGENT,
    func.row_number()
    .over(partition_by=_A.organization_id, order_by=(_A.turn, _A.callback_due_at, _A.id))
    .label("place"),
).subquery()
_O = _BY_ORGANIZATION.c
_DUE = Prepared(
    select(_O.id, _O.callback_url, _O.callback_attempts, _O.agent_id, _O.organization_id)
    .where(_O.place <= bindparam("each"))
    .order_by(_O.place, _O.callback_due_at, _O.id)
    .limit(bindparam("most"))
)
_J = jobs.c
_OF_JOBS = (
    select(
        _J.id,
        _J.callback_url,
        _J.callback_attempts,
        _J.callback_due_at,
        _J.organization_id,
        func.row_number().over(partition_by=_J.organization_id, order_by=(_J.callback_due_at, _J.id)).label("place"),
    )
    .where(_J.callback_due_at <= bindparam("now"))
    .subquery()
)
_DUE_JOBS = Prepared(
    select(_OF_JOBS)
    .where(_OF_JOBS.c.place <= bindparam("each"))
    .order_by(_OF_JOBS.c.place, _OF_JOBS.c.callback_due_at, _OF_JOBS.c.id)
    .limit(bindparam("most"))
)


def _tried(table: Table) -> Update:
    return (
        update(table)
        .where(table.c.id == bindparam("of_row"))
        .values(
            callback_due_at=bindparam("due"),
            callback_attempts=table.c.callback_attempts + 1,
            callback_sent_at=bindparam("tried_at"),
            callback_status_code=bindparam("new_code"),
            callback_error=bindparam("new_error"),
        )
    )


_TRIED_RUN, _TRIED_JOB = _tried(runs), _tried(jobs)


def schedule(tx: Tx, run_id: RunId, at: Micros) -> None:
    """Schedules the callback of a run."""
    tx.execute(_OWE, {"of_run": run_id, "due": at})


def due(tx: Tx, now: Micros, each: int, most: int) -> list[DueCallback]:
    """Callbacks that are due, at most `each` of one organization: its agents take turns, the longest due first."""
    bound = {"now": now, "each": each, "most": most}
    of_runs = [
        DueCallback(RunId(row.id), row.callback_url, row.callback_attempts, Consumer(row.organization_id, row.agent_id))
        for row in _DUE.rows(tx, bound)
    ]
    of_jobs = [
        DueCallback(JobId(row.id), row.callback_url, row.callback_attempts, Consumer(row.organization_id, row.id))
        for row in _DUE_JOBS.rows(tx, bound)
    ]
    return [*of_jobs, *of_runs][:most]


def record_attempt(
    tx: Tx, of: RunId | JobId, at: Micros, status: int | None, error: str | None, again_at: Micros | None
) -> None:
    """Records an attempt; without `again_at` it was the last."""
    statement = _TRIED_RUN if isinstance(of, RunId) else _TRIED_JOB
    tx.execute(statement, {"of_row": of, "due": again_at, "tried_at": at, "new_code": status, "new_error": error})
