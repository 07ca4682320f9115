"""Runs for people who look after a server: which are stuck, which were recovered, what they cost, and their journal."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query

from kelpie.agent.resources.runs import RunRecord
from kelpie.core.conversations.messages import NewMessage
from kelpie.core.conversations.runs import UNFINISHED, RunQuery, RunStatus, StopReason
from kelpie.core.ids import RunId
from kelpie.core.permissions.budgets import MICROS_PER_DOLLAR
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import After, Before, Order, limit_query, page_of
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import moment, timestamp
from kelpie.server.letta.messages.shape import part_shape
from kelpie.server.letta.runs.routes import agents_of, conversation_of
from kelpie.server.letta.runs.shape import run_shape

router = resource("/kelpie/runs", "runs (Kelpie)")

STUCK_S = 300  # an unfinished run that has committed nothing for so long may be stuck
LIMIT_MAX = 500

State = Literal["active", "stuck", "recovered", "completed", "failed", "cancelled"]


@router.get("", summary="List runs by state, cost and age (Kelpie)", response_model=None)
async def list_runs(
    api: CallerApi,
    state: Annotated[
        State | None,
        Query(description=f"`stuck`: unfinished, without a commit for {STUCK_S} seconds. `recovered`: after a crash."),
    ] = None,
    agent_id: str | None = None,
    conversation_id: str | None = None,
    stop_reason: StopReason | None = None,
    cost_usd_min: Annotated[float | None, Query(ge=0, le=1e9, description="Known cost of at least so much.")] = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    before: Before = None,
    after: After = None,
    limit: int | None = limit_query(50, most=LIMIT_MAX, least=1),
    order: Order = "desc",
) -> JsonAnswer:
    now = api.world.clock.now()
    query = RunQuery(
        page=page_of(before, after, limit, order),
        agent_ids=agents_of(agent_id, None),
        statuses=_statuses(state),
        stop_reason=stop_reason,
        conversation_id=conversation_of(conversation_id),
        cost_micros_min=None if cost_usd_min is None else round(cost_usd_min * MICROS_PER_DOLLAR),
        created_from=moment("created_after", created_after),
        created_to=moment("created_before", created_before),
        recovered=True if state == "recovered" else None,
        idle_since=_idle(now) if state == "stuck" else None,
    )
    return await listed(await api.runs.records(query), lambda record: record_shape(record, now))


@router.get("/{run_id}", summary="Get a run with its input and journal (Kelpie)", response_model=None)
async def retrieve_run(api: CallerApi, run_id: str) -> JsonAnswer:
    record = await api.runs.record(RunId.parse(run_id))
    shown = record_shape(record, api.world.clock.now())
    journal = [{"number": each.number, "kind": each.kind, "at": timestamp(each.at)} for each in record.journal]
    return JsonAnswer(shown | {"journal": journal, "input": [_given_shape(each) for each in record.given]})


def record_shape(record: RunRecord, now: Micros) -> dict[str, Any]:
    run = record.run
    return run_shape(run) | {
        "agent_name": record.agent_name,
        "step_count": run.step_count,
        "total_tokens": run.usage.total_tokens,
        "recoveries": record.recoveries,
        "active_at": timestamp(record.active_at),
        "stuck": run.status in UNFINISHED and record.active_at < _idle(now),
    }


def _given_shape(message: NewMessage) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": [part_shape(part) for part in message.content],
        "name": message.name,
        "otid": message.otid,
    }


def _statuses(state: State | None) -> tuple[RunStatus, ...]:
    if state == "active":
        return UNFINISHED
    return (RunStatus(state),) if state in ("completed", "failed", "cancelled") else ()


def _idle(now: Micros) -> Micros:
    return now - STUCK_S * MICROS_PER_SECOND
