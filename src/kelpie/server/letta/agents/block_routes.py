"""The blocks of an agent under both of their paths, and the agents of a block."""

from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.paging import Page50, Page100, cut
from kelpie.server.http.path_ids import AgentPath, BlockPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.agents.routes import Included, shape, shapes
from kelpie.server.letta.blocks.body import UpdateBlock, block_changes
from kelpie.server.letta.blocks.shape import block_shape

router = resource("/agents/{agent_id}", "blocks")
block_router = resource("/blocks", "blocks")


@block_router.get("/{block_id}/agents", summary="List the agents a block is attached to", response_model=None)
async def list_block_agents(api: CallerApi, block_id: BlockPath, page: Page50, include: Included) -> JsonAnswer:
    carriers = await api.blocks.agents_of(block_id, page)
    return JsonAnswer(await shapes(api, await api.agents.get_many(carriers, include), include))


@router.get("/core-memory/blocks", summary="List an agent's blocks", response_model=None)
@router.get("/blocks", include_in_schema=False, response_model=None)
async def list_agent_blocks(api: CallerApi, agent_id: AgentPath, page: Page100) -> JsonAnswer:
    blocks = await api.blocks.of_agent(agent_id)
    return JsonAnswer([block_shape(block) for block in cut(blocks, page)])


@router.patch("/core-memory/blocks/attach/{block_id}", summary="Attach a block to an agent", response_model=None)
@router.patch("/blocks/attach/{block_id}", include_in_schema=False, response_model=None)
async def attach_block(api: CallerApi, agent_id: AgentPath, block_id: BlockPath) -> JsonAnswer:
    view = await api.blocks.attach(agent_id, block_id)
    return JsonAnswer(await shape(api, api.agents.with_status(view)))


@router.patch("/core-memory/blocks/detach/{block_id}", summary="Detach a block from an agent", response_model=None)
@router.patch("/blocks/detach/{block_id}", include_in_schema=False, response_model=None)
async def detach_block(api: CallerApi, agent_id: AgentPath, block_id: BlockPath) -> JsonAnswer:
    view = await api.blocks.detach(agent_id, block_id)
    return JsonAnswer(await shape(api, api.agents.with_status(view)))


# A label may hold a slash, hence `:path`; these stand after attach and detach so that those are found first.
@router.get("/core-memory/blocks/{label:path}", summary="Get an agent's block by label", response_model=None)
@router.get("/blocks/{label:path}", include_in_schema=False, response_model=None)
async def retrieve_agent_block(api: CallerApi, agent_id: AgentPath, label: str) -> JsonAnswer:
    return JsonAnswer(block_shape(await api.blocks.of_agent_by_label(agent_id, label)))


@router.patch("/core-memory/blocks/{label:path}", summary="Update an agent's block by label", response_model=None)
@router.patch("/blocks/{label:path}", include_in_schema=False, response_model=None)
async def update_agent_block(api: CallerApi, agent_id: AgentPath, label: str, body: UpdateBlock) -> JsonAnswer:
    return JsonAnswer(block_shape(await api.blocks.update_by_label(agent_id, label, block_changes(body))))
