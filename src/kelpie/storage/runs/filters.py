"""The filters of a list of runs as SQL, each named and built once; a list is the filters it uses."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, exists, func, not_, select

from kelpie.core.conversations.runs import UNFINISHED, Comparison, RunQuery
from kelpie.core.ids import DEFAULT_CONVERSATION, OrganizationId
from kelpie.storage.accounts import row_ownership
from kelpie.storage.runs import tool_calls
from kelpie.storage.tables import agents, journal, runs
from kelpie.storage.tables.projects import in_project
from kelpie.world.database import Tx

_C = runs.c
# A lane starts a background run once; every further start, and each of another run, is a recovery.
_RESUMED = _C.taken_up > case((_C.background, 1), else_=0)
_FILTERS: dict[str, ColumnElement[bool]] = {
    "run_id": _C.id == bindparam("run_id"),
    "agent_ids": _C.agent_id.in_(bindparam("agent_ids", expanding=True)),
    "statuses": _C.status.in_(bindparam("statuses", expanding=True)),
    "background": _C.background == bindparam("background"),
    "stop_reason": _C.stop_reason == bindparam("stop_reason"),
    "conversation_id": _C.conversation_id == bindparam("conversation_id"),
    "default_conversation": _C.conversation_id.is_(None),
    "tools_used": _C.id.in_(tool_calls.runs_calling("tools_used")),
    "project_id": _C.agent_id.in_(select(agents.c.id).where(in_project())),
    "template_family": _C.agent_id.in_(
        select(agents.c.id).where(agents.c.base_template_id == bindparam("template_family"))
    ),
    "created_from": _C.created_at >= bindparam("created_from"),
    "created_to": _C.created_at <= bindparam("created_to"),
    "step_count_eq": _C.step_count == bindparam("step_count_eq"),
    "step_count_gte": _C.step_count >= bindparam("step_count_gte"),
    "step_count_lte": _C.step_count <= bindparam("step_count_lte"),
    "duration_eq": _C.total_duration_ns == bindparam("duration_eq"),
    "duration_gt": _C.total_duration_ns > bindparam("duration_gt"),
    "duration_gte": _C.total_duration_ns >= bindparam("duration_gte"),
    "cost_micros_min": _C.usage["cost_micros"].as_integer() >= bindparam("cost_micros_min"),
    "recovered": _RESUMED,
    "not_recovered": not_(_RESUMED),
    "idle_since": and_(
        _C.status.in_([status.value for status in UNFINISHED]),
        _C.created_at < bindparam("idle_since"),
        ~exists().where(
            journal.c.agent_id == _C.agent_id,
            journal.c.turn_id == _C.id,
            journal.c.created_at >= bindparam("idle_since"),
        ),
    ),
    "duration_lt": _C.total_duration_ns < bindparam("duration_lt"),
}
_OF_ORGANIZATION = and_(_C.organization_id == bindparam("organization"), row_ownership.of_present_agent(_C.agent_id))


@lru_cache(maxsize=256)
def _matching(names: tuple[str, ...]) -> Select[Any]:
    return select(runs).where(_OF_ORGANIZATION, *(_FILTERS[name] for name in names))


@lru_cache(maxsize=256)
def _ended(names: tuple[str, ...]) -> tuple[Select[Any], Select[Any]]:
    """The number of runs with a duration, and the durations, the shortest first, one per position."""
    where = (_OF_ORGANIZATION, _C.total_duration_ns.is_not(None), *(_FILTERS[name] for name in names))
    place = select(_C.total_duration_ns).where(*where).order_by(_C.total_duration_ns)
    return select(func.count()).select_from(runs).where(*where), place.limit(1).offset(bindparam("place"))


def matching(tx: Tx, organization: OrganizationId, query: RunQuery) -> tuple[Select[Any], Mapping[str, Any]]:
    """The requested runs, without page and order, and the parameters of the statement."""
    used = _given(query)
    if query.duration_percentile is not None:
        bound = {"organization": organization, **used}
        count, place = _ended(tuple(used))
        number = int(tx.execute(count, bound).scalar_one())
        at = min(number * query.duration_percentile // 100, max(number - 1, 0))
        slowest = tx.execute(place, {**bound, "place": at}).scalar()
        used["duration_gte"] = 0 if slowest is None else slowest
    return _matching(tuple(used)), {"organization": organization, **used}


def _given(query: RunQuery) -> dict[str, Any]:
    statuses = query.statuses or (UNFINISHED if query.active else ())
    in_default = query.conversation_id == DEFAULT_CONVERSATION
    given: dict[str, Any] = {
        "run_id": query.run_id,
        "agent_ids": list(query.agent_ids) or None,
        "statuses": [status.value for status in statuses] or None,
        "background": query.background,
        "stop_reason": query.stop_reason.value if query.stop_reason else None,
        "conversation_id": None if in_default else query.conversation_id,
        "default_conversation": True if in_default else None,
        "tools_used": list(query.tools_used) or None,
        "project_id": query.project_id,
        "template_family": query.template_family,
        "created_from": query.created_from,
        "created_to": query.created_to,
        "cost_micros_min": query.cost_micros_min,
        "recovered": True if query.recovered else None,
        "not_recovered": True if query.recovered is False else None,
        "idle_since": query.idle_since,
        **_compared("step_count", query.step_count),
        **_compared("duration", query.duration_ns),
    }
    return {name: value for name, value in given.items() if value is not None}


def _compared(name: str, comparison: Comparison | None) -> dict[str, int]:
    return {} if comparison is None else {f"{name}_{comparison.operator}": comparison.value}
