"""The record of tool calls as rows, and sums over them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Integer, Row, Select, bindparam, case, delete, func, insert, or_, select, tuple_
from sqlalchemy import cast as sql_cast

from kelpie.core.ids import AgentId, OrganizationId, RunId, StepId
from kelpie.core.permissions.call_records import RAN, CallOutcome, CallQuery, CallRecord, ResourceUse, ToolUsage
from kelpie.core.permissions.quotas import QuotaUse
from kelpie.core.permissions.tool_permissions import ToolKind
from kelpie.core.time import Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.tables import tool_calls
from kelpie.world.database import Tx

_C = tool_calls.c
_INSERT = insert(tool_calls)
_RAN = _C.outcome.in_([outcome.value for outcome in RAN])


def add(tx: Tx, records: Sequence[CallRecord]) -> None:
    """Records calls, in one statement."""
    if records:
        tx.execute(_INSERT, [_to_row(record) for record in records])


def _to_row(record: CallRecord) -> dict[str, Any]:
    return {
        "organization_id": record.organization_id,
        "agent_id": record.agent_id,
        "run_id": record.run_id,
        "step_id": record.step_id,
        "call_id": record.call_id,
        "tool_id": record.tool_id,
        "name": record.name,
        "kind": record.kind.value if record.kind else None,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "counted": record.counted,
        "duration_us": record.took.duration_us,
        "cpu_us": record.took.cpu_us,
        "memory_peak_bytes": record.took.memory_peak_bytes,
        "created_at": record.created_at,
    }


def _from_row(row: Row[Any]) -> CallRecord:
    return CallRecord(
        organization_id=OrganizationId(row.organization_id),
        name=row.name,
        kind=ToolKind(row.kind) if row.kind else None,
        outcome=CallOutcome(row.outcome),
        created_at=row.created_at,
        agent_id=AgentId(row.agent_id) if row.agent_id else None,
        run_id=RunId(row.run_id) if row.run_id else None,
        step_id=StepId(row.step_id) if row.step_id else None,
        call_id=row.call_id,
        tool_id=row.tool_id,
        took=ResourceUse(row.duration_us, row.cpu_us, row.memory_peak_bytes),
        counted=row.counted,
        reason=row.reason,
        number=row.number,
    )


_USED = select(
    func.coalesce(func.sum(sql_cast(_C.counted, Integer)), 0).label("calls"),
    func.coalesce(func.sum(_C.cpu_us), 0).label("cpu"),
    func.coalesce(func.max(_C.memory_peak_bytes), 0).label("peak"),
).where(_C.agent_id == bindparam("of_agent"), _C.created_at >= bindparam("since"))


def used_by(tx: Tx, agent_id: AgentId, since: Micros) -> QuotaUse:
    """The resources used by an agent's calls since then."""
    row = tx.execute(_USED, {"of_agent": agent_id, "since": since}).one()
    return QuotaUse(int(row.calls), int(row.cpu), int(row.peak))


_TOOLS_OF = select(_C.tool_id).where(_C.run_id == bindparam("of_run"), _C.tool_id.is_not(None), _RAN).distinct()


def tools_of(tx: Tx, run_id: RunId) -> list[str]:
    """The ids of the tools that a run has called."""
    return sorted(tx.execute(_TOOLS_OF, {"of_run": run_id}).scalars())


def runs_calling(tool_ids: str) -> Select[Any]:
    """The runs that have called one of the tools of this parameter."""
    return select(_C.run_id).where(_C.tool_id.in_(bindparam(tool_ids, expanding=True)), _C.run_id.is_not(None), _RAN)


_FILTERS: dict[str, ColumnElement[bool]] = {
    "before": _C.number < bindparam("before"),  # of one that is gone
    "before_at": tuple_(_C.created_at, _C.number) < tuple_(bindparam("before_at"), bindparam("before")),
    "name": _C.name == bindparam("name"),
    "outcome": _C.outcome == bindparam("outcome"),
    "run_id": _C.run_id == bindparam("run_id"),
}


@lru_cache(maxsize=64)
def _query(filters: tuple[str, ...]) -> Select[Any]:
    # Only the calls of a run, or of an agent, are read: no index of more may tempt the planner.
    of_run, of_agent = "run_id" in filters, "agent_id" in filters
    whose = _C.organization_id.concat("") if of_run or of_agent else _C.organization_id
    shown = or_(_C.agent_id.is_(None), row_ownership.of_present_agent(_C.agent_id))
    chosen = select(tool_calls).where(whose == bindparam("organization"), shown)
    if of_agent:
        chosen = chosen.where((_C.agent_id.concat("") if of_run else _C.agent_id) == bindparam("agent_id"))
    chosen = chosen.where(*(_FILTERS[name] for name in filters if name in _FILTERS))
    return chosen.order_by(_C.created_at.desc(), _C.number.desc()).limit(bindparam("most"))


_AT = select(_C.created_at).where(_C.number == bindparam("the_call"))


def select_calls(
    tx: Tx, organization: OrganizationId, query: CallQuery, agent_id: AgentId | None = None
) -> list[CallRecord]:
    """Calls of an organisation, or of one of its agents, the newest first."""
    given = {
        "agent_id": agent_id,
        "before": query.before,
        "name": query.name,
        "outcome": query.outcome.value if query.outcome else None,
        "run_id": query.run_id,
    }
    if query.before is not None:
        given["before_at"] = tx.execute(_AT, {"the_call": query.before}).scalar()
    bound = {name: value for name, value in given.items() if value is not None}
    filters = tuple(name for name in bound if name != "before" or "before_at" not in bound)
    rows = tx.execute(_query(filters), {**bound, "organization": organization, "most": query.limit})
    return [_from_row(row) for row in rows]


def _times(outcome: CallOutcome) -> Any:
    return func.sum(case((_C.outcome == outcome.value, 1), else_=0))


_USAGE = (
    select(
        _C.name,
        _C.kind,
        func.count().label("calls"),
        _times(CallOutcome.error).label("errors"),
        _times(CallOutcome.refused).label("refused"),
        func.sum(_C.duration_us).label("duration"),
        func.max(_C.duration_us).label("longest"),
        func.sum(_C.cpu_us).label("cpu"),
        func.max(_C.memory_peak_bytes).label("peak"),
        func.max(_C.created_at).label("last_at"),
    )
    .where(_C.organization_id == bindparam("organization"), _C.created_at >= bindparam("since"))
    .group_by(_C.name, _C.kind)
    .order_by(_C.name, _C.kind)
)


def usage(tx: Tx, organization: OrganizationId, since: Micros) -> list[ToolUsage]:
    """Usage of each tool of an organisation since then."""
    return [
        ToolUsage(
            row.name,
            ToolKind(row.kind) if row.kind else None,
            int(row.calls),
            int(row.errors),
            int(row.refused),
            int(row.duration),
            int(row.longest),
            int(row.cpu),
            int(row.peak),
            int(row.last_at),
        )
        for row in tx.execute(_USAGE, {"organization": organization, "since": since})
    ]


_OLD = (
    select(_C.number)
    .where(_C.run_id.is_(None), _C.created_at < bindparam("until"))
    .order_by(_C.number)
    .limit(bindparam("most"))
)
_DROP = delete(tool_calls).where(_C.number.in_(_OLD))


def has_manual_calls(tx: Tx, until: Micros) -> bool:
    """Checks whether there are calls without a run that clients made before then."""
    return tx.execute(_OLD, {"until": until, "most": 1}).first() is not None


def delete_manual_calls(tx: Tx, until: Micros, most: int) -> None:
    """Deletes the oldest of them."""
    tx.execute(_DROP, {"until": until, "most": most})
