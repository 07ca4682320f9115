"""Runs, steps and the journal's own keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import InvariantBroken, NotFound
from kelpie.core.ids import AgentId, ConversationId, OrganizationId, RunId, StepId
from kelpie.core.messages import NewMessage, Role, Usage
from kelpie.core.runs import (
    UNFINISHED,
    Run,
    RunQuery,
    RunStatus,
    Step,
    StepQuery,
    StepStatus,
    StopReason,
    check_run_move,
)
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.storage.heads import Claim, Node
from kelpie.storage.messages import content_from_json, content_to_json
from kelpie.storage.paging import Paging
from kelpie.storage.tables import journal, runs, steps
from kelpie.world.database import Tx

_INSERT_RUN = insert(runs)
_INSERT_STEP = insert(steps)
_INSERT_JOURNAL = insert(journal)


@dataclass(frozen=True, slots=True)
class Given:
    """What a run was asked to do: enough to begin it again after a crash."""

    messages: tuple[NewMessage, ...]
    max_steps: int


def _usage_to_json(usage: Usage) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in Usage.__slots__}


def _given_to_json(given: Given) -> dict[str, Any]:
    stored = [
        {
            "role": m.role.value,
            "content": content_to_json(m.content),
            "name": m.name,
            "otid": m.otid,
            "sender_id": m.sender_id,
            "group_id": m.group_id,
        }
        for m in given.messages
    ]
    return {"messages": stored, "max_steps": given.max_steps}


def _given_from_json(data: Mapping[str, Any]) -> Given:
    messages = tuple(
        NewMessage(
            Role(m["role"]), content_from_json(m["content"]), m["name"], m["otid"], m["sender_id"], m["group_id"]
        )
        for m in data["messages"]
    )
    return Given(messages, data["max_steps"])


def open_run(tx: Tx, run: Run, organization: OrganizationId, given: Given, node: Node) -> None:
    """Records a run with its input; the input is not history yet."""
    tx.execute(
        _INSERT_RUN,
        {
            "id": run.id,
            "agent_id": run.agent_id,
            "organization_id": organization,
            "conversation_id": run.conversation_id,
            "status": run.status.value,
            "stop_reason": None,
            "background": run.background,
            "input": _given_to_json(given),
            "metadata": dict(run.metadata),
            "request_config": dict(run.request_config),
            "callback_url": run.callback_url,
            "usage": _usage_to_json(run.usage),
            "step_count": 0,
            "ttft_ns": None,
            "total_duration_ns": None,
            "owner": node.id,
            "owner_incarnation": node.incarnation,
            "created_at": run.created_at,
            "completed_at": None,
        },
    )


_RUN = select(runs).where(runs.c.id == bindparam("of_run"))
_UPDATE_PROGRESS = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"))
    .values(usage=bindparam("new_usage"), step_count=bindparam("new_count"), ttft_ns=bindparam("new_ttft"))
)
_FINISH = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"), runs.c.status.in_([s.value for s in UNFINISHED]))
    .values(
        status=bindparam("new_status"),
        stop_reason=bindparam("new_reason"),
        completed_at=bindparam("at"),
        metadata=bindparam("new_metadata"),
        total_duration_ns=bindparam("duration"),
        usage=bindparam("new_usage"),
        step_count=bindparam("new_count"),
        ttft_ns=bindparam("new_ttft"),
    )
)


def progress(tx: Tx, run: Run) -> None:
    """Records usage and steps so far."""
    tx.execute(
        _UPDATE_PROGRESS,
        {
            "of_run": run.id,
            "new_usage": _usage_to_json(run.usage),
            "new_count": run.step_count,
            "new_ttft": run.ttft_ns,
        },
    )


def finish(tx: Tx, run: Run) -> None:
    """Records how a run ended. Raises InvariantBroken when it had ended before."""
    check_run_move(RunStatus.running, run.status)
    ended = tx.execute(
        _FINISH,
        {
            "of_run": run.id,
            "new_status": run.status.value,
            "new_reason": run.stop_reason.value if run.stop_reason else None,
            "at": run.completed_at,
            "new_metadata": dict(run.metadata),
            "duration": run.total_duration_ns,
            "new_usage": _usage_to_json(run.usage),
            "new_count": run.step_count,
            "new_ttft": run.ttft_ns,
        },
    ).rowcount
    if ended != 1:
        raise InvariantBroken(f"{run.id} had already ended")


def _run_from_row(row: Row[Any]) -> Run:
    return Run(
        id=RunId(row.id),
        agent_id=AgentId(row.agent_id),
        status=RunStatus(row.status),
        created_at=row.created_at,
        completed_at=row.completed_at,
        conversation_id=ConversationId(row.conversation_id) if row.conversation_id else None,
        background=row.background,
        stop_reason=StopReason(row.stop_reason) if row.stop_reason else None,
        metadata=row.metadata,
        request_config=row.request_config,
        callback_url=row.callback_url,
        ttft_ns=row.ttft_ns,
        total_duration_ns=row.total_duration_ns,
        usage=Usage(**row.usage),
        step_count=row.step_count,
    )


def get(tx: Tx, run_id: RunId) -> Run:
    """Raises NotFound."""
    row = tx.execute(_RUN, {"of_run": run_id}).first()
    if row is None:
        raise NotFound("Run", run_id)
    return _run_from_row(row)


_RUN_PAGES = Paging(runs, "created_at")
_RUN_FILTERS: dict[str, ColumnElement[bool]] = {
    "agent_id": runs.c.agent_id == bindparam("agent_id"),
    "statuses": runs.c.status.in_(bindparam("statuses", expanding=True)),
    "background": runs.c.background == bindparam("background"),
    "stop_reason": runs.c.stop_reason == bindparam("stop_reason"),
    "conversation_id": runs.c.conversation_id == bindparam("conversation_id"),
}
_RUNS_OF = select(runs).where(runs.c.organization_id == bindparam("organization"))


@lru_cache(maxsize=64)
def _run_query(filters: tuple[str, ...]) -> Select[Any]:
    return _RUNS_OF.where(*(_RUN_FILTERS[name] for name in filters))


def select_runs(tx: Tx, organization: OrganizationId, query: RunQuery) -> list[Run]:
    wanted = query.statuses or (UNFINISHED if query.active else ())
    given: dict[str, Any] = {
        "agent_id": query.agent_id,
        "statuses": [s.value for s in wanted] or None,
        "background": query.background,
        "stop_reason": query.stop_reason.value if query.stop_reason else None,
        "conversation_id": query.conversation_id,
    }
    used = {name: value for name, value in given.items() if value is not None}
    rows = _RUN_PAGES.rows(tx, _run_query(tuple(used)), query.page, {"organization": organization, **used})
    return [_run_from_row(row) for row in rows]


_DELETE_RUN = delete(runs).where(runs.c.id == bindparam("of_run"))


def remove(tx: Tx, run_id: RunId) -> None:
    """Deletes the record of a run; what it said stays in the history. Raises NotFound."""
    if tx.execute(_DELETE_RUN, {"of_run": run_id}).rowcount != 1:
        raise NotFound("Run", run_id)


# --- what a crash left ----------------------------------------------------------------------------------------------

_UNFINISHED_AGENTS = (
    select(runs.c.agent_id).where(runs.c.status.in_([s.value for s in UNFINISHED])).distinct().order_by(runs.c.agent_id)
)
_UNFINISHED_OF = (
    select(runs)
    .where(runs.c.agent_id == bindparam("of_agent"), runs.c.status.in_([s.value for s in UNFINISHED]))
    .order_by(runs.c.created_at, runs.c.id)
)


def agents_with_unfinished(tx: Tx) -> list[AgentId]:
    return [AgentId(row[0]) for row in tx.execute(_UNFINISHED_AGENTS)]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that never ended, what it was asked, and which node was running it."""

    run: Run
    given: Given
    node: Node


def unfinished_of(tx: Tx, agent_id: AgentId) -> list[Unfinished]:
    """Runs of an agent that never ended, oldest first."""
    rows = tx.execute(_UNFINISHED_OF, {"of_agent": agent_id})
    return [
        Unfinished(_run_from_row(row), _given_from_json(row.input), Node(row.owner, row.owner_incarnation))
        for row in rows
    ]


# --- steps ----------------------------------------------------------------------------------------------------------


def add_step(tx: Tx, step: Step, organization: OrganizationId) -> None:
    tx.execute(
        _INSERT_STEP,
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
            "usage": _usage_to_json(step.usage),
            "tags": list(step.tags),
            "feedback": step.feedback,
            "error": dict(step.error) if step.error else None,
            "llm_ns": step.llm_ns,
            "tool_ns": step.tool_ns,
            "step_ns": step.step_ns,
            "created_at": step.created_at,
        },
    )


def _step_from_row(row: Row[Any]) -> Step:
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
        error=row.error,
        llm_ns=row.llm_ns,
        tool_ns=row.tool_ns,
        step_ns=row.step_ns,
    )


_STEP = select(steps).where(steps.c.id == bindparam("of_step"))


def get_step(tx: Tx, step_id: StepId) -> Step:
    """Raises NotFound."""
    row = tx.execute(_STEP, {"of_step": step_id}).first()
    if row is None:
        raise NotFound("Step", step_id)
    return _step_from_row(row)


_SPENT_EVERY = 3600 * MICROS_PER_SECOND
_SPENT = select(steps.c.model_handle, steps.c.usage, steps.c.created_at).where(steps.c.created_at >= bindparam("since"))


def spent_since(tx: Tx, since: Micros) -> list[tuple[str, Micros, Usage]]:
    """What the models have used since then: handle, the hour's end and the sum, oldest first."""
    found: dict[tuple[Micros, str], Usage] = {}
    for handle, usage, created_at in tx.execute(_SPENT, {"since": since}):
        key = (created_at // _SPENT_EVERY + 1) * _SPENT_EVERY, handle or ""
        found[key] = found.get(key, Usage()) + Usage(**usage)
    return [(handle, at, usage) for (at, handle), usage in sorted(found.items(), key=lambda each: each[0])]


_STEP_PAGES = Paging(steps, "created_at")
_STEP_FILTERS: dict[str, ColumnElement[bool]] = {
    "agent_id": steps.c.agent_id == bindparam("agent_id"),
    "run_id": steps.c.run_id == bindparam("run_id"),
    "model": steps.c.model == bindparam("model"),
}
_STEPS_OF = select(steps).where(steps.c.organization_id == bindparam("organization"))


@lru_cache(maxsize=16)
def _step_query(filters: tuple[str, ...]) -> Select[Any]:
    return _STEPS_OF.where(*(_STEP_FILTERS[name] for name in filters))


def select_steps(tx: Tx, organization: OrganizationId, query: StepQuery) -> list[Step]:
    given = {"agent_id": query.agent_id, "run_id": query.run_id, "model": query.model}
    used = {name: value for name, value in given.items() if value is not None}
    rows = _STEP_PAGES.rows(tx, _step_query(tuple(used)), query.page, {"organization": organization, **used})
    return [_step_from_row(row) for row in rows]


# --- the journal's keys ---------------------------------------------------------------------------------------------

_ENTRY = select(journal.c.epoch).where(
    journal.c.agent_id == bindparam("of_agent"),
    journal.c.turn_id == bindparam("of_turn"),
    journal.c.step == bindparam("of_step"),
)


def journal_has(tx: Tx, agent_id: AgentId, turn_id: RunId, step: int) -> bool:
    """Whether this commit of the turn is in: how an unknown commit is resolved."""
    found = tx.execute(_ENTRY, {"of_agent": agent_id, "of_turn": turn_id, "of_step": step}).scalar()
    return found is not None


def journal_add(tx: Tx, claim: Claim, turn_id: RunId, step: int, kind: str, at: Micros) -> None:
    """Takes the key of one commit of a turn. Raises InvariantBroken when it was taken before."""
    try:
        tx.execute(
            _INSERT_JOURNAL,
            {
                "agent_id": claim.agent_id,
                "turn_id": turn_id,
                "step": step,
                "kind": kind,
                "epoch": claim.epoch,
                "created_at": at,
            },
        )
    except IntegrityError as error:
        raise InvariantBroken(f"step {step} of {turn_id} was already committed") from error


_LAST_ENTRY = (
    select(journal.c.step)
    .where(journal.c.agent_id == bindparam("of_agent"), journal.c.turn_id == bindparam("of_turn"))
    .order_by(journal.c.step.desc())
    .limit(1)
)


def journal_length(tx: Tx, agent_id: AgentId, turn_id: RunId) -> int:
    """How many commits the turn has."""
    last = tx.execute(_LAST_ENTRY, {"of_agent": agent_id, "of_turn": turn_id}).scalar()
    return 0 if last is None else int(last) + 1
