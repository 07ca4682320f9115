"""The steps resource: one model call with its tool calls."""

from kelpie.core.ids import AgentId
from kelpie.core.runs import StepQuery
from kelpie.server.answer import Answer
from kelpie.server.house import House
from kelpie.server.letta.ids import StepPath
from kelpie.server.letta.message_shape import messages
from kelpie.server.letta.paging import Page50, Page100Ascending
from kelpie.server.letta.resource import resource
from kelpie.server.letta.run_shape import step_metrics, step_shape

router = resource("/steps", "steps")


@router.get("/", summary="List steps", response_model=None)
async def list_steps(kelpie: House, page: Page50, agent_id: str | None = None, model: str | None = None) -> Answer:
    query = StepQuery(page=page, agent_id=None if agent_id is None else AgentId.parse(agent_id), model=model)
    return Answer([step_shape(step) for step in await kelpie.runs.steps(query)])


@router.get("/{step_id}", summary="Read a step", response_model=None)
async def retrieve_step(kelpie: House, step_id: StepPath) -> Answer:
    return Answer(step_shape(await kelpie.runs.step(step_id)))


@router.get("/{step_id}/metrics", summary="Read a step's times", response_model=None)
async def retrieve_step_metrics(kelpie: House, step_id: StepPath) -> Answer:
    return Answer(step_metrics(await kelpie.runs.step(step_id)))


@router.get("/{step_id}/messages", summary="List a step's messages", response_model=None)
async def list_step_messages(kelpie: House, step_id: StepPath, page: Page100Ascending) -> Answer:
    return Answer(messages(await kelpie.runs.step_messages(step_id, page)))
