"""The runs resource: the record of every turn."""

from typing import Annotated

from fastapi import Query

from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, ConversationId, RunId
from kelpie.core.runs import RunQuery, RunStatus, StepQuery, StopReason
from kelpie.server.answer import Answer
from kelpie.server.house import House
from kelpie.server.letta.message_shape import messages
from kelpie.server.letta.paging import After, Before, Order, Page100, Page100Ascending, limit_query, page_of
from kelpie.server.letta.resource import resource
from kelpie.server.letta.run_shape import run_metrics, run_shape, run_usage, step_shape

router = resource("/runs", "runs")


@router.get("/", summary="List runs", response_model=None)
async def list_runs(
    kelpie: House,
    agent_id: str | None = None,
    agent_ids: Annotated[list[str] | None, Query(deprecated=True)] = None,
    statuses: Annotated[list[str] | None, Query()] = None,
    background: bool | None = None,
    stop_reason: StopReason | None = None,
    conversation_id: str | None = None,
    active: Annotated[bool, Query(description="Only runs that are not finished.")] = False,
    before: Before = None,
    after: After = None,
    limit: int | None = limit_query(100, most=1000, least=1),
    order: Order = "desc",
    ascending: Annotated[bool, Query(deprecated=True)] = False,
) -> Answer:
    query = RunQuery(
        page=page_of(before, after, limit, "asc" if ascending else order),
        agent_id=_one_agent(agent_id, agent_ids),
        statuses=tuple(_status(text) for text in statuses or ()),
        background=background,
        stop_reason=stop_reason,
        conversation_id=None if conversation_id is None else ConversationId.parse(conversation_id),
        active=active,
    )
    return Answer([run_shape(run) for run in await kelpie.runs.list(query)])


@router.get("/active", summary="List runs that are not finished", deprecated=True, response_model=None)
async def list_active_runs(kelpie: House, agent_id: str | None = None, background: bool | None = None) -> Answer:
    query = RunQuery(agent_id=_one_agent(agent_id, None), background=background, active=True)
    return Answer([run_shape(run) for run in await kelpie.runs.list(query)])


@router.get("/{run_id}", summary="Read a run", response_model=None)
async def retrieve_run(kelpie: House, run_id: str) -> Answer:
    return Answer(run_shape(await kelpie.runs.get(RunId.parse(run_id))))


@router.delete("/{run_id}", summary="Remove a run's record", response_model=None)
async def delete_run(kelpie: House, run_id: str) -> Answer:
    await kelpie.runs.delete(RunId.parse(run_id))
    return Answer(None)


@router.get("/{run_id}/messages", summary="List a run's messages", response_model=None)
async def list_run_messages(kelpie: House, run_id: str, page: Page100Ascending) -> Answer:
    return Answer(messages(await kelpie.runs.messages(RunId.parse(run_id), page)))


@router.get("/{run_id}/steps", summary="List a run's steps", response_model=None)
async def list_run_steps(kelpie: House, run_id: str, page: Page100) -> Answer:
    run = await kelpie.runs.get(RunId.parse(run_id))
    return Answer([step_shape(step) for step in await kelpie.runs.steps(StepQuery(page=page, run_id=run.id))])


@router.get("/{run_id}/usage", summary="Read a run's token counts", response_model=None)
async def retrieve_run_usage(kelpie: House, run_id: str) -> Answer:
    return Answer(run_usage((await kelpie.runs.get(RunId.parse(run_id))).usage))


@router.get("/{run_id}/metrics", summary="Read a run's times", response_model=None)
async def retrieve_run_metrics(kelpie: House, run_id: str) -> Answer:
    return Answer(run_metrics(await kelpie.runs.get(RunId.parse(run_id))))


def _one_agent(agent_id: str | None, agent_ids: list[str] | None) -> AgentId | None:
    given = list(dict.fromkeys([*([agent_id] if agent_id else ()), *(agent_ids or ())]))
    if len(given) > 1:
        raise InvalidInput("agent_ids", "this version lists the runs of one agent or of all; give agent_id once")
    return AgentId.parse(given[0]) if given else None


def _status(text: str) -> RunStatus:
    try:
        return RunStatus(text)
    except ValueError:
        raise InvalidInput("statuses", f"'{text[:80]}' is none of {', '.join(RunStatus)}") from None
