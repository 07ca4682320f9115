"""Runs with the filters of dashboards: number of steps, duration, tools used."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query

from kelpie.core.conversations.runs import Comparison, RunQuery, StopReason
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import RunId
from kelpie.core.time import from_datetime
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import After, Before, Order, limit_query, page_of
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.runs.routes import (
    RUNS_MOST,
    Active,
    AgentIds,
    Statuses,
    agents_of,
    conversation_of,
    statuses_of,
)
from kelpie.server.letta.runs.shape import run_shape

router = resource("/_internal_runs", "runs")

_COLUMNS = {"created_at": "created_at", "duration": "total_duration_ns"}

Count = Annotated[int | None, Query(ge=0, le=2**53)]


@router.get("/", summary="List runs filtered by tools and duration", response_model=None)
async def list_filtered_runs(
    api: CallerApi,
    run_id: str | None = None,
    agent_id: str | None = None,
    agent_ids: AgentIds = None,
    statuses: Statuses = None,
    background: bool | None = None,
    stop_reason: StopReason | None = None,
    template_family: str | None = None,
    step_count: Count = None,
    step_count_operator: Literal["eq", "gte", "lte"] = "eq",
    tools_used: Annotated[
        list[str] | None, Query(description="Ids of tools; return runs that used at least one of them.")
    ] = None,
    project_id: str | None = None,
    conversation_id: str | None = None,
    duration_percentile: Annotated[
        int | None, Query(ge=0, le=100, description="Return only runs at least as slow as this percentile.")
    ] = None,
    duration_value: Annotated[int | None, Query(ge=0, le=2**62, description="In nanoseconds.")] = None,
    duration_operator: Literal["gt", "lt", "eq"] | None = None,
    start_date: datetime | None = None,
    end_date: datetime | None = None,
    active: Active = False,
    before: Before = None,
    after: After = None,
    limit: int | None = limit_query(100, most=RUNS_MOST),
    order: Order = "desc",
    order_by: Literal["created_at", "duration"] = "created_at",
    ascending: Annotated[bool, Query(deprecated=True)] = False,
) -> JsonAnswer:
    if (duration_value is None) != (duration_operator is None):
        raise InvalidInput("duration_value", "send it together with duration_operator, or omit both")
    query = RunQuery(
        page=page_of(before, after, limit, "asc" if ascending else order, _COLUMNS[order_by]),
        run_id=None if run_id is None else RunId.parse(run_id),
        agent_ids=agents_of(agent_id, agent_ids),
        statuses=statuses_of(statuses),
        background=background,
        stop_reason=stop_reason,
        conversation_id=conversation_of(conversation_id),
        active=active,
        tools_used=tuple(tools_used or ()),
        project_id=project_id,
        template_family=template_family,
        step_count=None if step_count is None else Comparison(step_count_operator, step_count),
        duration_ns=None
        if duration_value is None or duration_operator is None
        else Comparison(duration_operator, duration_value),
        duration_percentile=duration_percentile,
        created_from=None if start_date is None else from_datetime(start_date),
        created_to=None if end_date is None else from_datetime(end_date),
    )
    return await listed(await api.runs.page(query), run_shape)
