"""The identities of an agent, and the agents of an identity."""

from kelpie.core.agents.agent import AgentQuery
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import Page50
from kelpie.server.http.path_ids import AgentPath, IdentityPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.agents.routes import Included, shapes

router = resource("/agents/{agent_id}/identities", "identities")
identity_router = resource("/identities", "identities")


@identity_router.get("/{identity_id}/agents", summary="List an identity's agents", response_model=None)
async def list_identity_agents(
    api: CallerApi, identity_id: IdentityPath, page: Page50, include: Included
) -> JsonAnswer:
    await api.identities.get(identity_id)
    query = AgentQuery(page=page, identity_id=identity_id, show_hidden=True)
    return await listed(await shapes(api, await api.agents.page(query, include), include), lambda agent: agent)


@router.patch("/attach/{identity_id}", summary="Attach an identity to an agent", response_model=None)
async def attach_to_agent(api: CallerApi, agent_id: AgentPath, identity_id: IdentityPath) -> JsonAnswer:
    await api.identities.attach_to_agent(agent_id, identity_id)
    return JsonAnswer(None)


@router.patch("/detach/{identity_id}", summary="Detach an identity from an agent", response_model=None)
async def detach_from_agent(api: CallerApi, agent_id: AgentPath, identity_id: IdentityPath) -> JsonAnswer:
    await api.identities.detach_from_agent(agent_id, identity_id)
    return JsonAnswer(None)
