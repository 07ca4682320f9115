"""The schedules of an agent: create, list, read, change, delete, fire now, and the history of firings."""

from typing import Annotated

from fastapi import Path, Query

from kelpie.core.access.hosts import check_callback
from kelpie.core.paging import Page
from kelpie.core.triggers.schedules import FiringStatus
from kelpie.server.http.json_answer import JsonAnswer, built, listed
from kelpie.server.http.paging import After, Page50
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.schedules.body import ScheduleBody, changed_schedule, new_schedule
from kelpie.server.letta.schedules.shape import firing_shape, schedule_shape

router = resource("/agents/{agent_id}/schedule", "schedules")

LIST_MAX = 1_000

SchedulePath = Annotated[str, Path(max_length=100, description="The id of a schedule.")]
Status = Annotated[FiringStatus | None, Query(description="Only firings in this state, such as `dead`.")]


@router.post("", summary="Create a schedule", response_model=None)
async def create_schedule(api: CallerApi, agent_id: AgentPath, body: ScheduleBody) -> JsonAnswer:
    _check_callback(api, body)
    return JsonAnswer(schedule_shape(await api.schedules.create(agent_id, new_schedule(body))))


@router.get("", summary="List the schedules of an agent", response_model=None)
async def list_schedules(
    api: CallerApi,
    agent_id: AgentPath,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 50,
) -> JsonAnswer:
    found = await api.schedules.page(agent_id, Page(limit + 1, after))
    shown = await built(found[:limit], schedule_shape)
    return JsonAnswer({"scheduled_messages": shown, "has_next_page": len(found) > limit})


@router.get("/{schedule_id}", summary="Get a schedule", response_model=None)
async def get_schedule(api: CallerApi, agent_id: AgentPath, schedule_id: SchedulePath) -> JsonAnswer:
    return JsonAnswer(schedule_shape(await api.schedules.get(agent_id, schedule_id)))


@router.patch("/{schedule_id}", summary="Update, pause or resume a schedule (Kelpie)", response_model=None)
async def update_schedule(
    api: CallerApi, agent_id: AgentPath, schedule_id: SchedulePath, body: ScheduleBody
) -> JsonAnswer:
    _check_callback(api, body)
    after = await api.schedules.update(agent_id, schedule_id, lambda before: changed_schedule(body, before))
    return JsonAnswer(schedule_shape(after))


@router.delete("/{schedule_id}", summary="Delete a schedule and its history", response_model=None)
async def delete_schedule(api: CallerApi, agent_id: AgentPath, schedule_id: SchedulePath) -> JsonAnswer:
    await api.schedules.delete(agent_id, schedule_id)
    return JsonAnswer({"success": True})


@router.post("/{schedule_id}/run", summary="Fire a schedule now (Kelpie)", response_model=None)
async def run_schedule(api: CallerApi, agent_id: AgentPath, schedule_id: SchedulePath) -> JsonAnswer:
    return JsonAnswer(firing_shape(await api.schedules.fire_now(agent_id, schedule_id)), 202)


@router.get("/{schedule_id}/firings", summary="List the firings of a schedule (Kelpie)", response_model=None)
async def list_firings(
    api: CallerApi, agent_id: AgentPath, schedule_id: SchedulePath, page: Page50, status: Status = None
) -> JsonAnswer:
    return await listed(await api.schedules.history(agent_id, schedule_id, status, page), firing_shape)


def _check_callback(api: CallerApi, body: ScheduleBody) -> None:
    if body.callback_url is not None:
        check_callback(body.callback_url, private=api.settings.callback_private)
