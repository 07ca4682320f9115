"""The runs resource: the record of every turn."""

from typing import Annotated, Any

from fastapi import Query

from kelpie.core.conversations.runs import RunQuery, RunStatus, StepQuery, StopReason
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import DEFAULT_CONVERSATION, AgentId, ConversationId, RunId
from kelpie.server.http.json_answer import JsonAnswer, joined, listed
from kelpie.server.http.paging import After, Before, Order, Page100, Page100Ascending, limit_query, page_of
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.messages.shape import View, wire_messages
from kelpie.server.letta.runs.shape import run_metrics, run_shape, run_spans, run_usage, step_shape

router = resource("/runs", "runs")

AgentIds = Annotated[list[str] | None, Query()]
Statuses = Annotated[list[str] | None, Query()]
Active = Annotated[bool, Query(description="Return only unfinished runs.")]
RUNS_MOST = 1000


@router.get("/", summary="List runs", response_model=None)
async def list_runs(
    api: CallerApi,
    agent_id: str | None = None,
    agent_ids: AgentIds = None,
    statuses: Statuses = None,
    background: bool | None = None,
    stop_reason: StopReason | None = None,
    conversation_id: str | None = None,
    active: Active = False,
    before: Before = None,
    after: After = None,
    limit: int | None = limit_query(100, most=RUNS_MOST, least=1),
    order: Order = "desc",
    ascending: Annotated[bool, Query(deprecated=True)] = False,
) -> JsonAnswer:
    query = RunQuery(
        page=page_of(before, after, limit, "asc" if ascending else order),
        agent_ids=agents_of(agent_id, agent_ids),
        statuses=statuses_of(statuses),
        background=background,
        stop_reason=stop_reason,
        conversation_id=conversation_of(conversation_id),
        active=active,
    )
    return await listed(await api.runs.page(query), run_shape)


@router.get("/active", summary="List unfinished runs", deprecated=True, response_model=None)
async def list_active_runs(api: CallerApi, agent_id: str | None = None, background: bool | None = None) -> JsonAnswer:
    query = RunQuery(agent_ids=agents_of(agent_id, None), background=background, active=True)
    return await listed(await api.runs.page(query), run_shape)


@router.get("/{run_id}", summary="Get a run", response_model=None)
async def retrieve_run(api: CallerApi, run_id: str) -> JsonAnswer:
    return JsonAnswer(run_shape(await api.runs.get(RunId.parse(run_id))))


@router.delete("/{run_id}", summary="Delete a run", response_model=None)
async def delete_run(api: CallerApi, run_id: str) -> JsonAnswer:
    await api.runs.delete(RunId.parse(run_id))
    return JsonAnswer(None)


@router.get("/{run_id}/messages", summary="List a run's messages", response_model=None)
async def list_run_messages(api: CallerApi, run_id: str, page: Page100Ascending) -> JsonAnswer:
    run = await api.runs.get(RunId.parse(run_id))
    asked: list[str] | None = run.request_config.get("include_return_message_types")
    view = View(types=None if asked is None else frozenset(asked))
    return await joined(await api.runs.messages(run.id, page), lambda row: wire_messages(row, view))


@router.get("/{run_id}/steps", summary="List a run's steps", response_model=None)
async def list_run_steps(api: CallerApi, run_id: str, page: Page100) -> JsonAnswer:
    run = await api.runs.get(RunId.parse(run_id))
    found = await api.runs.steps(StepQuery(page=page, run_id=run.id))
    return await listed(found, lambda step: step_shape(step, api.caller.organization_id))


@router.get("/{run_id}/usage", summary="Get a run's token usage", response_model=None)
async def retrieve_run_usage(api: CallerApi, run_id: str) -> JsonAnswer:
    return JsonAnswer(run_usage((await api.runs.get(RunId.parse(run_id))).usage))


@router.get("/{run_id}/metrics", summary="Get a run's timings", response_model=None)
async def retrieve_run_metrics(api: CallerApi, run_id: str) -> JsonAnswer:
    run, tools_used = await api.runs.metrics(RunId.parse(run_id))
    return JsonAnswer(run_metrics(run, tools_used, api.caller.organization_id))


@router.get("/{run_id}/trace", summary="Get a run's timings as trace spans", response_model=None)
async def retrieve_run_trace(
    api: CallerApi, run_id: str, limit: Annotated[int, Query(ge=1, le=5000)] = 1000
) -> JsonAnswer:
    run = await api.runs.get(RunId.parse(run_id))
    page = page_of(None, None, limit, "asc")
    spans: list[dict[str, Any]] = run_spans(run, await api.runs.steps(StepQuery(page=page, run_id=run.id)))
    return JsonAnswer(spans[:limit])


def agents_of(agent_id: str | None, agent_ids: list[str] | None) -> tuple[AgentId, ...]:
    """Raises InvalidInput for a malformed id."""
    return tuple(map(AgentId.parse, dict.fromkeys([*([agent_id] if agent_id else ()), *(agent_ids or ())])))


def statuses_of(texts: list[str] | None) -> tuple[RunStatus, ...]:
    """Raises InvalidInput for an unknown status."""
    try:
        return tuple(map(RunStatus, texts or ()))
    except ValueError:
        wrong = next(text for text in texts or () if text not in list(RunStatus))
        raise InvalidInput("statuses", f"'{wrong[:80]}' is not one of {', '.join(RunStatus)}") from None


def conversation_of(text: str | None) -> str | None:
    """A conversation, or `default` for messages outside of conversations. Raises InvalidInput."""
    return text if text is None or text == DEFAULT_CONVERSATION else ConversationId.parse(text)
