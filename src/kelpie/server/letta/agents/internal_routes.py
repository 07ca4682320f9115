"""Second routes to blocks and agents that Letta keeps for its own programs; they do the same as the public ones."""

from typing import Annotated

from fastapi import Query

from kelpie.core.agents.agent import AgentQuery
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.agents import block_routes
from kelpie.server.letta.blocks import routes as blocks
from kelpie.server.letta.blocks.body import UpdateBlock

agent_router = resource("/_internal_agents", "agents")
block_router = resource("/_internal_blocks", "blocks")


@agent_router.get("/count", summary="Count agents", response_model=None)
async def count_visible_agents(
    api: CallerApi, exclude_hidden: Annotated[bool, Query(description="Leave out hidden agents.")] = True
) -> JsonAnswer:
    return JsonAnswer(await api.agents.count(AgentQuery(show_hidden=not exclude_hidden)))


@agent_router.patch(
    "/{agent_id}/core-memory/blocks/{block_label}", summary="Update an agent's block by label", response_model=None
)
async def update_block_of_agent(api: CallerApi, agent_id: AgentPath, block_label: str, body: UpdateBlock) -> JsonAnswer:
    return await block_routes.update_agent_block(api, agent_id, block_label, body)


for _path, _method, _endpoint, _summary in (
    ("/", "GET", blocks.list_blocks, "List blocks"),
    ("/", "POST", blocks.create_block, "Create a block"),
    ("/{block_id}", "DELETE", blocks.delete_block, "Delete a block and detach it from all agents"),
    ("/{block_id}/agents", "GET", block_routes.list_block_agents, "List the agents a block is attached to"),
):
    block_router.add_api_route(
        _path,
        _endpoint,
        methods=[_method],
        summary=_summary,
        response_model=None,
        operation_id=f"internal_{_endpoint.__name__}",
    )
