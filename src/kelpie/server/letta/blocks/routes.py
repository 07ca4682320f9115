"""The blocks resource."""

from typing import Annotated

from fastapi import Query
from pydantic import Field

from kelpie.core.memory.blocks import BlockQuery
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.limits.request_limits import LINKS_MAX, Part, Several
from kelpie.server.http.paging import Page50Ascending
from kelpie.server.http.path_ids import BlockPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.blocks.body import CreateBlock, UpdateBlock, block_changes, new_block
from kelpie.server.letta.blocks.shape import block_shape

router = resource("/blocks", "blocks")

Count = Annotated[int | None, Query(ge=0, le=2**31)]


@router.post("/", summary="Create a block", response_model=None)
async def create_block(api: CallerApi, body: CreateBlock) -> JsonAnswer:
    return JsonAnswer(block_shape(await api.blocks.create(new_block(body))))


@router.get("/", summary="List blocks", response_model=None)
async def list_blocks(
    api: CallerApi,
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
) -> JsonAnswer:
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
    return await listed(await api.blocks.page(query), block_shape)


@router.get("/count", summary="Count blocks", response_model=None)
async def count_blocks(
    api: CallerApi,
    label: str | None = None,
    name: str | None = None,
    templates_only: bool = False,
    tags: Several = None,
    match_all_tags: bool = False,
    project_id: str | None = None,
) -> JsonAnswer:
    query = BlockQuery(
        label=label,
        name=name,
        templates_only=templates_only,
        tags=tuple(tags or ()),
        match_all_tags=match_all_tags,
        project_id=project_id,
        show_hidden=True,
    )
    return JsonAnswer(await api.blocks.count(query))


@router.get("/{block_id}", summary="Get a block", response_model=None)
async def retrieve_block(api: CallerApi, block_id: BlockPath) -> JsonAnswer:
    return JsonAnswer(block_shape(await api.blocks.get(block_id)))


@router.patch("/{block_id}", summary="Update a block, for every agent it is attached to", response_model=None)
async def update_block(api: CallerApi, block_id: BlockPath, body: UpdateBlock) -> JsonAnswer:
    return JsonAnswer(block_shape(await api.blocks.update(block_id, block_changes(body))))


@router.delete("/{block_id}", summary="Delete a block and detach it from all agents", response_model=None)
async def delete_block(api: CallerApi, block_id: BlockPath) -> JsonAnswer:
    await api.blocks.delete(block_id)
    return JsonAnswer(None)
