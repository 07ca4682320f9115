"""The steps resource: one model call with its tool calls, the feedback on it, and the payloads on the wire."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.conversations.runs import StepQuery
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId
from kelpie.core.time import from_datetime
from kelpie.server.http.json_answer import JsonAnswer, joined, listed
from kelpie.server.http.paging import Page50, Page100Ascending
from kelpie.server.http.path_ids import StepPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.messages.shape import wire_messages
from kelpie.server.letta.runs.shape import step_metrics, step_shape
from kelpie.server.letta.runs.trace_shape import trace_shape

router = resource("/steps", "steps")
telemetry_router = resource("/telemetry", "steps")

TAGS_MAX = 100
TAG_CHARS_MAX = 500
_TID_CHARS_MAX = 200


class Feedback(BaseModel):
    model_config = ConfigDict(extra="ignore")

    feedback: Literal["positive", "negative"] | None = None
    tags: Annotated[list[Annotated[str, Field(max_length=TAG_CHARS_MAX)]], Field(max_length=TAGS_MAX)] | None = None


@router.get("/", summary="List steps", response_model=None)
async def list_steps(
    api: CallerApi,
    page: Page50,
    agent_id: str | None = None,
    model: str | None = None,
    start_date: datetime | None = None,
    end_date: datetime | None = None,
    trace_ids: Annotated[list[str] | None, Query()] = None,
    feedback: Literal["positive", "negative"] | None = None,
    has_feedback: bool | None = None,
    tags: Annotated[list[str] | None, Query(description="Return only steps with at least one of these tags.")] = None,
    project_id: str | None = None,
) -> JsonAnswer:
    if trace_ids:
        return JsonAnswer([])  # no step has one: requests are told apart by X-Request-Id
    query = StepQuery(
        page=page,
        agent_id=None if agent_id is None else AgentId.parse(agent_id),
        model=model,
        feedback=feedback,
        has_feedback=has_feedback,
        tags=tuple(tags or ()),
        project_id=project_id,
        created_from=None if start_date is None else from_datetime(start_date),
        created_to=None if end_date is None else from_datetime(end_date),
    )
    return await listed(await api.runs.steps(query), lambda step: step_shape(step, api.caller.organization_id))


@router.get("/{step_id}", summary="Get a step", response_model=None)
async def retrieve_step(api: CallerApi, step_id: StepPath) -> JsonAnswer:
    return JsonAnswer(step_shape(await api.runs.step(step_id), api.caller.organization_id))


@router.get("/{step_id}/metrics", summary="Get a step's timings", response_model=None)
async def retrieve_step_metrics(api: CallerApi, step_id: StepPath) -> JsonAnswer:
    return JsonAnswer(step_metrics(await api.runs.step(step_id), api.caller.organization_id))


@router.get("/{step_id}/messages", summary="List a step's messages", response_model=None)
async def list_step_messages(api: CallerApi, step_id: StepPath, page: Page100Ascending) -> JsonAnswer:
    return await joined(await api.runs.step_messages(step_id, page), wire_messages)


@router.get("/{step_id}/trace", summary="Get a step's request to and answer from the provider", response_model=None)
@telemetry_router.get(
    "/{step_id}", summary="Get a step's request to and answer from the provider", deprecated=True, response_model=None
)
async def retrieve_step_trace(api: CallerApi, step_id: StepPath) -> JsonAnswer:
    traced = await api.runs.trace(step_id)
    if traced is None:
        return JsonAnswer(None)
    facts = api.models.known(traced.agent.model.handle)
    return JsonAnswer(trace_shape(traced, facts, api.caller.organization_id))


@router.patch("/{step_id}/feedback", summary="Give feedback on a step", response_model=None)
async def give_feedback(api: CallerApi, step_id: StepPath, body: Feedback) -> JsonAnswer:
    step = await api.runs.judge(step_id, body.feedback, body.tags)
    return JsonAnswer(step_shape(step, api.caller.organization_id))


@router.patch(
    "/{step_id}/transaction/{transaction_id}", summary="Record the billing transaction of a step", response_model=None
)
async def set_transaction(api: CallerApi, step_id: StepPath, transaction_id: str) -> JsonAnswer:
    if len(transaction_id) > _TID_CHARS_MAX:
        raise InvalidInput("transaction_id", f"must have at most {_TID_CHARS_MAX} characters")
    return JsonAnswer(step_shape(await api.runs.set_transaction(step_id, transaction_id), api.caller.organization_id))
