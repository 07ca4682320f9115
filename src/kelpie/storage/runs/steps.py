"""Steps as rows: one model call each, with its usage."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, bindparam, delete, func, insert, select, update

from kelpie.core.conversations.messages import Usage
from kelpie.core.conversations.runs import Step, StepQuery, StepStatus, StopReason
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, OrganizationId, RunId, StepId
from kelpie.core.permissions.budgets import SpentAmount
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.rows.paging import Paging
from kelpie.storage.tables import step_tags, steps
from kelpie.world.database import Tx

_INSERT = Insert(steps)


def usage_to_json(usage: Usage) -> dict[str, Any]:
    """The stored form of token counts, of a step and of a whole run."""
    return {name: getattr(usage, name) for name in Usage.__slots__}


def add(tx: Tx, step: Step, organization: OrganizationId) -> None:
    _INSERT.run(
        tx,
        [
            {
                "id": step.id,
                "run_id": step.run_id,
                "agent_id": step.agent_id,
                "organization_id": organization,
                "status": step.status.value,
                "stop_reason": step.stop_reason.value if step.stop_reason else None,
                "provider_name": step.provider_name,
                "provider_category": step.provider_category,
                "model": step.model,
                "model_handle": step.model_handle,
                "model_endpoint": step.model_endpoint,
                "context_window_limit": step.context_window_limit,
                "usage": usage_to_json(step.usage),
                "tags": list(step.tags),
                "feedback": step.feedback,
                "transaction_id": step.transaction_id,
                "project_id": step.project_id,
                "error": dict(step.error) if step.error else None,
                "llm_ns": step.llm_ns,
                "tool_ns": step.tool_ns,
                "step_ns": step.step_ns,
                "created_at": step.created_at,
            }
        ],
    )


def _from_row(row: Row[Any]) -> Step:
    return Step(
        id=StepId(row.id),
        run_id=RunId(row.run_id),
        agent_id=AgentId(row.agent_id),
        created_at=row.created_at,
        status=StepStatus(row.status),
        stop_reason=StopReason(row.stop_reason) if row.stop_reason else None,
        provider_name=row.provider_name,
        provider_category=row.provider_category,
        model=row.model,
        model_handle=row.model_handle,
        model_endpoint=row.model_endpoint,
        context_window_limit=row.context_window_limit,
        usage=Usage(**row.usage),
        tags=tuple(row.tags),
        feedback=row.feedback,
        transaction_id=row.transaction_id,
        project_id=row.project_id,
        error=row.error,
        llm_ns=row.llm_ns,
        tool_ns=row.tool_ns,
        step_ns=row.step_ns,
    )


_ONE = select(steps).where(steps.c.id == bindparam("of_step"))


def get(tx: Tx, step_id: StepId) -> Step:
    """Raises NotFound."""
    row = tx.execute(_ONE, {"of_step": step_id}).first()
    if row is None:
        raise NotFound("Step", step_id)
    return _from_row(row)


_SPENT_EVERY = 3600 * MICROS_PER_SECOND
_HOUR = (steps.c.created_at // _SPENT_EVERY).label("hour")
_COST = func.coalesce(func.sum(steps.c.usage["cost_micros"].as_integer()), 0)


def _spent() -> Select[Any, Any, Any, Any]:
    """A sum by the database, one row per organisation, hour and model. The index starts with the organisation, so it is
    read one organisation after the other: rows older than `since` are never read."""
    first = select(func.min(steps.c.organization_id).label("id")).cte("owners", recursive=True)
    after = select(func.min(steps.c.organization_id)).where(steps.c.organization_id > first.c.id).scalar_subquery()
    owners = first.union_all(select(after).where(first.c.id.is_not(None)))
    return (
        select(steps.c.organization_id, steps.c.model_handle, _HOUR, _COST.label("micros"))
        .where(steps.c.organization_id.in_(select(owners.c.id)), steps.c.created_at >= bindparam("since"))
        .group_by(steps.c.organization_id, steps.c.model_handle, _HOUR)
        .order_by(_HOUR, steps.c.organization_id, steps.c.model_handle)
    )


_SPENT = _spent()


def spent_since(tx: Tx, since: Micros) -> list[tuple[str, str, Micros, int]]:
    """The cost of models since then: organization, handle, the hour's end and the millionths of a dollar, oldest
    first."""
    rows = tx.execute(_SPENT, {"since": since})
    return [
        (row.organization_id, row.model_handle or "", (row.hour + 1) * _SPENT_EVERY, int(row.micros)) for row in rows
    ]


_SPENT_BY = select(
    _COST.label("micros"),
    func.coalesce(func.sum(steps.c.usage["total_tokens"].as_integer()), 0).label("tokens"),
    func.count().label("calls"),
    func.coalesce(func.sum(steps.c.usage["unpriced_calls"].as_integer()), 0).label("unpriced_calls"),
).where(steps.c.agent_id == bindparam("of_agent"), steps.c.created_at >= bindparam("since"))


def spent_by(tx: Tx, agent_id: AgentId, since: Micros = 0) -> SpentAmount:
    """The usage of an agent's steps since then."""
    row = tx.execute(_SPENT_BY, {"of_agent": agent_id, "since": since}).one()
    return SpentAmount(int(row.micros), int(row.tokens), int(row.calls), int(row.unpriced_calls))


def spent_in(step: Step) -> SpentAmount:
    """The usage of one step, as `spent_by` counts it."""
    usage = step.usage
    return SpentAmount(usage.cost_micros, usage.total_tokens, 1, usage.unpriced_calls)


_PAGES = Paging(steps, "created_at")
_FILTERS: dict[str, ColumnElement[bool]] = {
    "agent_id": steps.c.agent_id == bindparam("agent_id"),
    "run_id": steps.c.run_id == bindparam("run_id"),
    "model": steps.c.model == bindparam("model"),
    "feedback": steps.c.feedback == bindparam("feedback"),
    "with_feedback": steps.c.feedback.is_not(None),
    "without_feedback": steps.c.feedback.is_(None),
    "tags": steps.c.id.in_(select(step_tags.c.step_id).where(step_tags.c.tag.in_(bindparam("tags", expanding=True)))),
    "project_id": steps.c.project_id == bindparam("project_id"),
    "created_from": steps.c.created_at >= bindparam("created_from"),
    "created_to": steps.c.created_at <= bindparam("created_to"),
}
_ALL_OF = select(steps).where(
    steps.c.organization_id == bindparam("organization"), row_ownership.of_present_agent(steps.c.agent_id)
)


@lru_cache(maxsize=256)
def _query(filters: tuple[str, ...]) -> Select[Any]:
    return _ALL_OF.where(*(_FILTERS[name] for name in filters))


def select_steps(tx: Tx, organization: OrganizationId, query: StepQuery) -> list[Step]:
    given: dict[str, Any] = {
        "agent_id": query.agent_id,
        "run_id": query.run_id,
        "model": query.model,
        "feedback": query.feedback,
        "with_feedback": query.has_feedback or None,
        "without_feedback": True if query.has_feedback is False else None,
        "tags": list(query.tags) or None,
        "project_id": query.project_id,
        "created_from": query.created_from,
        "created_to": query.created_to,
    }
    used = {name: value for name, value in given.items() if value is not None}
    bound = {"organization": organization, **used}
    rows = _PAGES.rows(tx, _query(tuple(used)), query.page, bound, within={"organization_id": organization})
    return [_from_row(row) for row in rows]


# --- feedback on steps ------------------------------------------------------------------------------------------------

_SET_FEEDBACK = update(steps).where(steps.c.id == bindparam("of_step")).values(feedback=bindparam("new_feedback"))
_SET_TAGS = update(steps).where(steps.c.id == bindparam("of_step")).values(tags=bindparam("new_tags"))
_SET_TRANSACTION = update(steps).where(steps.c.id == bindparam("of_step")).values(transaction_id=bindparam("new_id"))
_SET_STOP = (
    update(steps)
    .where(steps.c.id == bindparam("of_step"), steps.c.run_id == bindparam("of_run"))
    .values(stop_reason=bindparam("new_reason"))
)
_DROP_TAGS = delete(step_tags).where(step_tags.c.step_id == bindparam("of_step"))
_ADD_TAGS = insert(step_tags)


def set_feedback(tx: Tx, step_id: StepId, feedback: str | None, tags: Sequence[str] | None) -> None:
    """Sets a person's feedback on a step; `tags` None leaves the tags unchanged."""
    tx.execute(_SET_FEEDBACK, {"of_step": step_id, "new_feedback": feedback})
    if tags is None:
        return
    tx.execute(_SET_TAGS, {"of_step": step_id, "new_tags": list(tags)})
    tx.execute(_DROP_TAGS, {"of_step": step_id})
    if tags:
        tx.execute(_ADD_TAGS, [{"step_id": step_id, "tag": tag} for tag in dict.fromkeys(tags)])


def set_transaction(tx: Tx, step_id: StepId, transaction_id: str) -> None:
    tx.execute(_SET_TRANSACTION, {"of_step": step_id, "new_id": transaction_id})


def set_stop(tx: Tx, step_id: StepId, run_id: RunId, reason: StopReason) -> None:
    """Records why the run ended, on a step of it that was written before that was known; one of an earlier run, whose
    calls waited until now, keeps its own reason."""
    tx.execute(_SET_STOP, {"of_step": step_id, "of_run": run_id, "new_reason": reason.value})
