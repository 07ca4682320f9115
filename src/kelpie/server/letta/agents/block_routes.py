"""The blocks of an agent under both of their paths, and the agents of a block."""

from kelpie.server.http.caller_api import House
from kelpie.server.http.json_answer import Answer
from kelpie.server.http.paging import Page50, Page100, cut
from kelpie.server.http.path_ids import AgentPath, BlockPath
from kelpie.server.http.router import resource
from kelpie.server.letta.agents.routes import Included, shape, shapes
from kelpie.server.letta.blocks.body import UpdateBlock, block_changes
from kelpie.server.letta.blocks.shape import block_shape

router = resource("/agents/{agent_id}", "blocks")
block_router = resource("/blocks", "blocks")


@block_router.get("/{block_id}/agents", summary="List the agents that carry a block", response_model=None)
async def list_block_agents(kelpie: House, block_id: BlockPath, page: Page50, include: Included) -> Answer:
    carriers = await kelpie.blocks.agents_of(block_id, page)
    return Answer(await shapes(kelpie, await kelpie.agents.get_many(carriers, include), include))


@router.get("/core-memory/blocks", summary="List an agent's blocks", response_model=None)
@router.get("/blocks", include_in_schema=False, response_model=None)
async def list_agent_blocks(kelpie: House, agent_id: AgentPath, page: Page100) -> Answer:
    blocks = await kelpie.blocks.of_agent(agent_id)
    return Answer([block_shape(block) for block in cut(blocks, page)])


@router.patch("/core-memory/blocks/attach/{block_id}", summary="Hang a block on an agent", response_model=None)
@router.patch("/blocks/attach/{block_id}", include_in_schema=False, response_model=None)
async def attach_block(kelpie: House, agent_id: AgentPath, block_id: BlockPath) -> Answer:
    view = await kelpie.blocks.attach(agent_id, block_id)
    return Answer(await shape(kelpie, kelpie.agents.with_status(view)))


@router.patch("/core-memory/blocks/detach/{block_id}", summary="Take a block off an agent", response_model=None)
@router.patch("/blocks/detach/{block_id}", include_in_schema=False, response_model=None)
async def detach_block(kelpie: House, agent_id: AgentPath, block_id: BlockPath) -> Answer:
    view = await kelpie.blocks.detach(agent_id, block_id)
    return Answer(await shape(kelpie, kelpie.agents.with_status(view)))


# A label may hold a slash, hence `:path`; these stand after attach and detach so that those are found first.
@router.get("/core-memory/blocks/{label:path}", summary="Read an agent's block by label", response_model=None)
@router.get("/blocks/{label:path}", include_in_schema=False, response_model=None)
async def retrieve_agent_block(kelpie: House, agent_id: AgentPath, label: str) -> Answer:
    return Answer(block_shape(await kelpie.blocks.of_agent_by_label(agent_id, label)))


@router.patch("/core-memory/blocks/{label:path}", summary="Change an agent's block by label", response_model=None)
@router.patch("/blocks/{label:path}", include_in_schema=False, response_model=None)
async def update_agent_block(kelpie: House, agent_id: AgentPath, label: str, body: UpdateBlock) -> Answer:
    return Answer(block_shape(await kelpie.blocks.update_by_label(agent_id, label, block_changes(body))))
