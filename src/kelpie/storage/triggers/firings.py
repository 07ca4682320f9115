"""Firings of schedules as rows. A schedule has one firing for each due time, which the table itself enforces."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from kelpie.core.conversations.jobs import ACTIVE
from kelpie.core.conversations.runs import UNFINISHED, Run
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, FiringId, JobId, OrganizationId, RunId, ScheduleId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.core.triggers.schedules import HISTORY_MAX, SETTLED, Firing, FiringStatus
from kelpie.storage.accounts.row_ownership import of_present_agent
from kelpie.storage.rows.paging import Paging
from kelpie.storage.runs.runs import get_many
from kelpie.storage.tables import firings, jobs, runs
from kelpie.world.database import Tx

_c = firings.c
_PRESENT = of_present_agent(_c.agent_id)
_SETTLED = sorted(status.value for status in SETTLED - {FiringStatus.dead})
_ONE = sa.select(firings).where(_c.id == sa.bindparam("of_firing"), _PRESENT).with_for_update()
_OF_TIME = sa.select(_c.id).where(
    _c.schedule_id == sa.bindparam("of_schedule"), _c.due_at == sa.bindparam("at"), _c.manual.is_(False)
)
_WAITING = (
    sa.select(_c.id)
    .where(_c.attempt_at <= sa.bindparam("now"), _PRESENT)
    .order_by(_c.attempt_at, _c.id)
    .limit(sa.bindparam("most"))
)
# Firings whose next attempt was set when the clock was ahead of where it is now.
_IS_AHEAD = (
    _c.status == FiringStatus.waiting.value,
    _c.updated_at > sa.bindparam("now"),
    _c.attempt_at > sa.bindparam("now"),
)
_AHEAD = sa.select(_c.id).where(*_IS_AHEAD).limit(1)
_BRING_FORWARD = (
    sa.update(firings).where(*_IS_AHEAD).values(attempt_at=sa.bindparam("now"), updated_at=sa.bindparam("now"))
)
_NEXT = sa.select(sa.func.min(_c.attempt_at))
# A run or a batch that is gone was deleted by a client.
_ENDED = (
    sa.select(_c.id)
    .outerjoin(runs, runs.c.id == _c.run_id)
    .outerjoin(jobs, jobs.c.id == _c.batch_id)
    .where(
        _c.status == FiringStatus.running.value,
        sa.or_(runs.c.id.is_(None), runs.c.status.not_in([status.value for status in UNFINISHED])),
        sa.or_(jobs.c.id.is_(None), jobs.c.status.not_in([status.value for status in ACTIVE])),
        _PRESENT,
    )
    .order_by(_c.updated_at, _c.id)
    .limit(sa.bindparam("most"))
)
_RUNNING = sa.select(sa.func.count()).where(_c.status == FiringStatus.running.value)
_UNSETTLED = sa.select(sa.func.count()).where(
    _c.schedule_id == sa.bindparam("of_schedule"),
    _c.status.in_([FiringStatus.waiting.value, FiringStatus.running.value]),
)
_OLD = (
    sa.select(_c.id)
    .where(_c.schedule_id == sa.bindparam("of_schedule"), _c.status.in_(_SETTLED))
    .order_by(_c.due_at.desc(), _c.id.desc())
    .limit(HISTORY_MAX)
    .offset(sa.bindparam("kept"))
)
_FORGET = sa.delete(firings).where(_c.id.in_(sa.bindparam("ids", expanding=True)))
_INSERT = sa.insert(firings)
_CHANGEABLE = ("status", "attempts", "attempt_at", "run_id", "batch_id", "error", "updated_at")
_UPDATE = (
    sa.update(firings)
    .where(_c.id == sa.bindparam("of_firing"))
    .values({name: sa.bindparam(f"new_{name}", type_=_c[name].type) for name in _CHANGEABLE})
)
_HISTORY = sa.select(firings).where(
    _c.organization_id == sa.bindparam("of_organization"), _c.schedule_id == sa.bindparam("of_schedule"), _PRESENT
)
_OF_ALL = sa.select(firings).where(_c.organization_id == sa.bindparam("of_organization"), _PRESENT)
_IN_STATE = _c.status == sa.bindparam("of_status")
_HISTORY_IN_STATE, _OF_ALL_IN_STATE = _HISTORY.where(_IN_STATE), _OF_ALL.where(_IN_STATE)
_PAGES = Paging(firings, "created_at", "due_at")


def insert(tx: Tx, firing: Firing) -> None:
    tx.execute(_INSERT, _to_row(firing))


def exists(tx: Tx, schedule_id: ScheduleId, due_at: Micros) -> bool:
    """True if this time of a schedule was handled already."""
    return tx.execute(_OF_TIME, {"of_schedule": schedule_id, "at": due_at}).first() is not None


def replace(tx: Tx, firing: Firing) -> None:
    """Writes the fields of a firing that change."""
    row = _to_row(firing)
    tx.execute(_UPDATE, {f"new_{name}": row[name] for name in _CHANGEABLE} | {"of_firing": firing.id})


def find(tx: Tx, firing_id: str) -> Firing | None:
    """A firing of any organization, locked; None if it was deleted."""
    row = tx.execute(_ONE, {"of_firing": firing_id}).first()
    return None if row is None else _from_row(row)


def get(tx: Tx, organization: OrganizationId, firing_id: str) -> Firing:
    """Raises NotFound."""
    found = find(tx, firing_id)
    if found is None or found.organization_id != organization:
        raise NotFound("Firing", firing_id[:80])
    return found


def waiting(tx: Tx, now: Micros, most: int) -> list[FiringId]:
    """Firings whose attempt is due, the longest due first."""
    return [FiringId(each) for each in tx.execute(_WAITING, {"now": now, "most": most}).scalars()]


def are_ahead_of(tx: Tx, now: Micros) -> bool:
    """Checks whether the next attempt of any firing was set at a time which is in the future now."""
    return tx.execute(_AHEAD, {"now": now}).first() is not None


def bring_forward(tx: Tx, now: Micros) -> None:
    """Lets these firings be tried now."""
    tx.execute(_BRING_FORWARD, {"now": now})


def ended(tx: Tx, most: int) -> list[FiringId]:
    """Firings whose run has ended."""
    return [FiringId(each) for each in tx.execute(_ENDED, {"most": most}).scalars()]


def run_of(tx: Tx, firing: Firing) -> Run | None:
    """The run of a firing; None if it was deleted."""
    return next(iter(get_many(tx, [] if firing.run_id is None else [firing.run_id])), None)


def next_attempt(tx: Tx) -> Micros | None:
    """The time of the next attempt of any firing."""
    return tx.execute(_NEXT).scalar()


def count_running(tx: Tx) -> int:
    """Number of firings whose run has not been seen to end."""
    return int(tx.execute(_RUNNING).scalar_one())


def count_unsettled(tx: Tx, schedule_id: ScheduleId) -> int:
    return int(tx.execute(_UNSETTLED, {"of_schedule": schedule_id}).scalar_one())


def forget_old(tx: Tx, schedule_id: ScheduleId) -> None:
    """Deletes the oldest firings of a schedule beyond its history; dead ones stay until somebody settles them."""
    old: Sequence[str] = tx.execute(_OLD, {"of_schedule": schedule_id, "kept": HISTORY_MAX}).scalars().all()
    if old:
        tx.execute(_FORGET, {"ids": list(old)})


def history(
    tx: Tx, organization: OrganizationId, schedule_id: ScheduleId | None, status: FiringStatus | None, wanted: Page
) -> list[Firing]:
    """Firings of a schedule, or of the whole organization."""
    bound, within = {"of_organization": str(organization)}, {"organization_id": str(organization)}
    if status is not None:
        bound["of_status"] = status.value
    if schedule_id is None:
        statement = _OF_ALL if status is None else _OF_ALL_IN_STATE
    else:
        bound["of_schedule"] = within["schedule_id"] = schedule_id
        statement = _HISTORY if status is None else _HISTORY_IN_STATE
    return [_from_row(row) for row in _PAGES.rows(tx, statement, wanted, bound, within=within)]


def _to_row(firing: Firing) -> dict[str, Any]:
    return {
        "id": firing.id,
        "schedule_id": firing.schedule_id,
        "organization_id": firing.organization_id,
        "agent_id": firing.agent_id,
        "due_at": firing.due_at,
        "manual": firing.manual,
        "status": firing.status.value,
        "attempts": firing.attempts,
        "attempt_at": firing.attempt_at,
        "run_id": firing.run_id,
        "batch_id": firing.batch_id,
        "error": firing.error,
        "created_at": firing.created_at,
        "updated_at": firing.updated_at,
    }


def _from_row(row: sa.Row[Any]) -> Firing:
    return Firing(
        id=FiringId(row.id),
        schedule_id=ScheduleId(row.schedule_id),
        organization_id=OrganizationId(row.organization_id),
        agent_id=AgentId(row.agent_id),
        due_at=row.due_at,
        status=FiringStatus(row.status),
        created_at=row.created_at,
        updated_at=row.updated_at,
        attempts=row.attempts,
        attempt_at=row.attempt_at,
        run_id=None if row.run_id is None else RunId(row.run_id),
        batch_id=None if row.batch_id is None else JobId(row.batch_id),
        error=row.error,
        manual=row.manual,
    )
