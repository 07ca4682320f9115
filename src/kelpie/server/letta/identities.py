"""The identities resource, and the identities of an agent or a block."""

from typing import Annotated

from fastapi import Query

from kelpie.core.agents import AgentQuery
from kelpie.core.blocks import BlockQuery
from kelpie.core.identities import KEY_CHARS_MAX, NAME_CHARS_MAX, IdentityQuery, IdentityType
from kelpie.server.answer import Answer
from kelpie.server.house import House
from kelpie.server.letta.agents import Included, shapes
from kelpie.server.letta.block_shape import block_shape
from kelpie.server.letta.identity_body import (
    CreateIdentity,
    Properties,
    UpdateIdentity,
    identity_changes,
    new_identity,
    properties_of,
)
from kelpie.server.letta.identity_shape import identity_shape
from kelpie.server.letta.ids import AgentPath, BlockPath, IdentityPath
from kelpie.server.letta.paging import Page50
from kelpie.server.letta.resource import resource

router = resource("/identities", "identities")
agent_router = resource("/agents/{agent_id}/identities", "identities")
block_router = resource("/blocks/{block_id}/identities", "identities")


@router.get("/", summary="List identities", response_model=None)
async def list_identities(
    kelpie: House,
    page: Page50,
    name: Annotated[str | None, Query(max_length=NAME_CHARS_MAX, description="Part of the name.")] = None,
    project_id: str | None = None,
    identifier_key: Annotated[str | None, Query(max_length=KEY_CHARS_MAX)] = None,
    identity_type: IdentityType | None = None,
) -> Answer:
    found = await kelpie.identities.list(IdentityQuery(page, name, project_id, identifier_key, identity_type))
    return Answer([identity_shape(identity) for identity in found])


@router.get("/count", summary="Count identities", response_model=None)
async def count_identities(kelpie: House) -> Answer:
    return Answer(await kelpie.identities.count())


@router.post("/", summary="Make an identity", response_model=None)
async def create_identity(kelpie: House, body: CreateIdentity) -> Answer:
    return Answer(identity_shape(await kelpie.identities.create(new_identity(body))))


@router.put("/", summary="Make an identity, or renew the one of that key", response_model=None)
async def upsert_identity(kelpie: House, body: CreateIdentity) -> Answer:
    return Answer(identity_shape(await kelpie.identities.upsert(new_identity(body))))


@router.get("/{identity_id}", summary="Read an identity", response_model=None)
async def retrieve_identity(kelpie: House, identity_id: IdentityPath) -> Answer:
    return Answer(identity_shape(await kelpie.identities.get(identity_id)))


@router.patch("/{identity_id}", summary="Change an identity", response_model=None)
async def update_identity(kelpie: House, identity_id: IdentityPath, body: UpdateIdentity) -> Answer:
    return Answer(identity_shape(await kelpie.identities.update(identity_id, identity_changes(body))))


@router.delete("/{identity_id}", summary="Remove an identity", response_model=None)
async def delete_identity(kelpie: House, identity_id: IdentityPath) -> Answer:
    await kelpie.identities.delete(identity_id)
    return Answer(None)


@router.put("/{identity_id}/properties", summary="Set an identity's properties", response_model=None)
async def set_properties(kelpie: House, identity_id: IdentityPath, body: Properties) -> Answer:
    return Answer(identity_shape(await kelpie.identities.set_properties(identity_id, properties_of(body))))


@router.get("/{identity_id}/agents", summary="List an identity's agents", response_model=None)
async def list_identity_agents(kelpie: House, identity_id: IdentityPath, page: Page50, include: Included) -> Answer:
    await kelpie.identities.get(identity_id)
    query = AgentQuery(page=page, identity_id=identity_id, show_hidden=True)
    return Answer(await shapes(kelpie, await kelpie.agents.list(query, include), include))


@router.get("/{identity_id}/blocks", summary="List an identity's blocks", response_model=None)
async def list_identity_blocks(kelpie: House, identity_id: IdentityPath, page: Page50) -> Answer:
    await kelpie.identities.get(identity_id)
    query = BlockQuery(page=page, identity_id=identity_id, show_hidden=True)
    return Answer([block_shape(block) for block in await kelpie.blocks.list(query)])


@agent_router.patch("/attach/{identity_id}", summary="Link an identity to an agent", response_model=None)
async def attach_to_agent(kelpie: House, agent_id: AgentPath, identity_id: IdentityPath) -> Answer:
    await kelpie.identities.attach_to_agent(agent_id, identity_id)
    return Answer(None)


@agent_router.patch("/detach/{identity_id}", summary="Take an identity off an agent", response_model=None)
async def detach_from_agent(kelpie: House, agent_id: AgentPath, identity_id: IdentityPath) -> Answer:
    await kelpie.identities.detach_from_agent(agent_id, identity_id)
    return Answer(None)


@block_router.patch("/attach/{identity_id}", summary="Link an identity to a block", response_model=None)
async def attach_to_block(kelpie: House, block_id: BlockPath, identity_id: IdentityPath) -> Answer:
    return Answer(block_shape(await kelpie.identities.attach_to_block(block_id, identity_id)))


@block_router.patch("/detach/{identity_id}", summary="Take an identity off a block", response_model=None)
async def detach_from_block(kelpie: House, block_id: BlockPath, identity_id: IdentityPath) -> Answer:
    return Answer(block_shape(await kelpie.identities.detach_from_block(block_id, identity_id)))
