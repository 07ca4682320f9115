"""Maintenance of agents: repair of message histories that something other than a turn has damaged."""

from pydantic import BaseModel, Field

from kelpie.core.agents.agent import AgentQuery, Include
from kelpie.core.ids import AgentId
from kelpie.core.paging import Page
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource

router = resource("/kelpie/agents", "agents (Kelpie)")

PAGE = 100


class RepairBody(BaseModel):
    """The agent to repair."""

    agent_id: str | None = Field(None, description="The agent to repair. Defaults to all agents.")


@router.post("/repair", summary="Repair message histories and report what was done (Kelpie)", response_model=None)
async def repair(api: CallerApi, body: RepairBody) -> JsonAnswer:
    if body.agent_id is not None:
        return JsonAnswer([await _repaired(api, AgentId.parse(body.agent_id))])
    found: list[dict[str, object]] = []
    after: str | None = None
    while page := await api.agents.page(
        AgentQuery(page=Page(limit=PAGE, after=after, descending=False), show_hidden=True), Include()
    ):
        found += [await _repaired(api, view.agent.id) for view in page]
        after = page[-1].agent.id
    return JsonAnswer(found)


async def _repaired(api: CallerApi, agent_id: AgentId) -> dict[str, object]:
    return {"agent_id": agent_id, "done": await api.histories.repair(agent_id)}
