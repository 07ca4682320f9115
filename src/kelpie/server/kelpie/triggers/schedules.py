"""Schedules of all agents, their firings, and the firings that were given up (Kelpie)."""

from typing import Annotated

from fastapi import Path

from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import Page50
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.schedules.routes import SchedulePath, Status
from kelpie.server.letta.schedules.shape import firing_shape, schedule_shape

router = resource("/kelpie/schedules", "schedules (Kelpie)")
firing_router = resource("/kelpie/firings", "schedules (Kelpie)")

FiringPath = Annotated[str, Path(max_length=100, description="The id of a firing.")]


@router.get("", summary="List the schedules of all agents (Kelpie)", response_model=None)
async def list_all_schedules(api: CallerApi, page: Page50) -> JsonAnswer:
    return await listed(await api.schedules.page(None, page), schedule_shape)


@router.get("/{schedule_id}", summary="Get a schedule of any agent (Kelpie)", response_model=None)
async def get_any_schedule(api: CallerApi, schedule_id: SchedulePath) -> JsonAnswer:
    return JsonAnswer(schedule_shape(await api.schedules.get(None, schedule_id)))


@firing_router.get("", summary="List the firings of all schedules (Kelpie)", response_model=None)
async def list_all_firings(api: CallerApi, page: Page50, status: Status = None) -> JsonAnswer:
    return await listed(await api.schedules.all_firings(status, page), firing_shape)


@firing_router.post("/{firing_id}/requeue", summary="Try a dead firing again (Kelpie)", response_model=None)
async def requeue_firing(api: CallerApi, firing_id: FiringPath) -> JsonAnswer:
    return JsonAnswer(firing_shape(await api.schedules.requeue(firing_id)), 202)
