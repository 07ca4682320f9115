"""The blocks resource, and the blocks of an agent under both of their paths."""

from typing import Annotated

from fastapi import Query
from pydantic import Field

from kelpie.core.blocks import BlockQuery
from kelpie.server.answer import Answer
from kelpie.server.house import House
from kelpie.server.letta.agents import Included, shape, shapes
from kelpie.server.letta.block_body import CreateBlock, UpdateBlock, block_changes, new_block
from kelpie.server.letta.block_shape import block_shape
from kelpie.server.letta.bounds import LINKS_MAX, Part, Several
from kelpie.server.letta.ids import AgentPath, BlockPath
from kelpie.server.letta.paging import Page50, Page50Ascending, Page100, cut
from kelpie.server.letta.resource import resource

router = resource("/blocks", "blocks")
agent_router = resource("/agents/{agent_id}", "blocks")

Count = Annotated[int | None, Query(ge=0, le=2**31)]


@router.post("/", summary="Make a block", response_model=None)
async def create_block(kelpie: House, body: CreateBlock) -> Answer:
    return Answer(block_shape(await kelpie.blocks.create(new_block(body))))


@router.get("/", summary="List blocks", response_model=None)
async def list_blocks(
    kelpie: House,
    page: Page50Ascending,
    label: Annotated[str | None, Query(pattern="^[a-zA-Z0-9_/-]+$", min_length=1, max_length=50)] = None,
    name: str | None = None,
    templates_only: bool = False,
    label_search: Part = None,
    description_search: Part = None,
    value_search: Part = None,
    tags: Several = None,
    match_all_tags: bool = False,
    project_id: str | None = None,
    connected_to_agents_count_gt: Count = None,
    connected_to_agents_count_lt: Count = None,
    connected_to_agents_count_eq: Annotated[
        list[Annotated[int, Field(ge=0, le=2**31)]] | None, Query(max_length=LINKS_MAX)
    ] = None,
    show_hidden_blocks: bool = False,
    identity_id: str | None = None,
    identifier_keys: Several = None,
) -> Answer:
    query = BlockQuery(
        page=page,
        label=label,
        name=name,
        templates_only=templates_only,
        label_search=label_search,
        description_search=description_search,
        value_search=value_search,
        tags=tuple(tags or ()),
        match_all_tags=match_all_tags,
        project_id=project_id,
        connected_count_gt=connected_to_agents_count_gt,
        connected_count_lt=connected_to_agents_count_lt,
        connected_count_eq=tuple(connected_to_agents_count_eq or ()),
        identity_id=identity_id,
        identifier_keys=tuple(identifier_keys or ()),
        show_hidden=show_hidden_blocks,
    )
    return Answer([block_shape(block) for block in await kelpie.blocks.list(query)])


@router.get("/count", summary="Count blocks", response_model=None)
async def count_blocks(
    kelpie: House,
    label: str | None = None,
    name: str | None = None,
    templates_only: bool = False,
    tags: Several = None,
    match_all_tags: bool = False,
    project_id: str | None = None,
) -> Answer:
    query = BlockQuery(
        label=label,
        name=name,
        templates_only=templates_only,
        tags=tuple(tags or ()),
        match_all_tags=match_all_tags,
        project_id=project_id,
        show_hidden=True,
    )
    return Answer(await kelpie.blocks.count(query))


@router.get("/{block_id}", summary="Read a block", response_model=None)
async def retrieve_block(kelpie: House, block_id: BlockPath) -> Answer:
    return Answer(block_shape(await kelpie.blocks.get(block_id)))


@router.patch("/{block_id}", summary="Change a block, for every agent that carries it", response_model=None)
async def update_block(kelpie: House, block_id: BlockPath, body: UpdateBlock) -> Answer:
    return Answer(block_shape(await kelpie.blocks.update(block_id, block_changes(body))))


@router.delete("/{block_id}", summary="Remove a block from everywhere", response_model=None)
async def delete_block(kelpie: House, block_id: BlockPath) -> Answer:
    await kelpie.blocks.delete(block_id)
    return Answer(None)


@router.get("/{block_id}/agents", summary="List the agents that carry a block", response_model=None)
async def list_block_agents(kelpie: House, block_id: BlockPath, page: Page50, include: Included) -> Answer:
    carriers = await kelpie.blocks.agents_of(block_id, page)
    return Answer(await shapes(kelpie, await kelpie.agents.get_many(carriers, include), include))


@agent_router.get("/core-memory/blocks", summary="List an agent's blocks", response_model=None)
@agent_router.get("/blocks", include_in_schema=False, response_model=None)
async def list_agent_blocks(kelpie: House, agent_id: AgentPath, page: Page100) -> Answer:
    blocks = await kelpie.blocks.of_agent(agent_id)
    return Answer([block_shape(block) for block in cut(blocks, page)])


@agent_router.patch("/core-memory/blocks/attach/{block_id}", summary="Hang a block on an agent", response_model=None)
@agent_router.patch("/blocks/attach/{block_id}", include_in_schema=False, response_model=None)
async def attach_block(kelpie: House, agent_id: AgentPath, block_id: BlockPath) -> Answer:
    view = await kelpie.blocks.attach(agent_id, block_id)
    return Answer(await shape(kelpie, kelpie.agents.with_status(view)))


@agent_router.patch("/core-memory/blocks/detach/{block_id}", summary="Take a block off an agent", response_model=None)
@agent_router.patch("/blocks/detach/{block_id}", include_in_schema=False, response_model=None)
async def detach_block(kelpie: House, agent_id: AgentPath, block_id: BlockPath) -> Answer:
    view = await kelpie.blocks.detach(agent_id, block_id)
    return Answer(await shape(kelpie, kelpie.agents.with_status(view)))


# A label may hold a slash, hence `:path`; these stand after attach and detach so that those are found first.
@agent_router.get("/core-memory/blocks/{label:path}", summary="Read an agent's block by label", response_model=None)
@agent_router.get("/blocks/{label:path}", include_in_schema=False, response_model=None)
async def retrieve_agent_block(kelpie: House, agent_id: AgentPath, label: str) -> Answer:
    return Answer(block_shape(await kelpie.blocks.of_agent_by_label(agent_id, label)))


@agent_router.patch("/core-memory/blocks/{label:path}", summary="Change an agent's block by label", response_model=None)
@agent_router.patch("/blocks/{label:path}", include_in_schema=False, response_model=None)
async def update_agent_block(kelpie: House, agent_id: AgentPath, label: str, body: UpdateBlock) -> Answer:
    return Answer(block_shape(await kelpie.blocks.update_by_label(agent_id, label, block_changes(body))))
