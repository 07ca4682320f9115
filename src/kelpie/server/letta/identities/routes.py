"""The identities resource, and the identities of a block."""

from typing import Annotated

from fastapi import Query

from kelpie.core.access.identities import KEY_CHARS_MAX, NAME_CHARS_MAX, IdentityQuery, IdentityType
from kelpie.core.memory.blocks import BlockQuery
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import Page50
from kelpie.server.http.path_ids import BlockPath, IdentityPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.blocks.shape import block_shape
from kelpie.server.letta.identities.body import (
    CreateIdentity,
    Properties,
    UpdateIdentity,
    identity_changes,
    new_identity,
    properties_of,
)
from kelpie.server.letta.identities.shape import identity_shape

router = resource("/identities", "identities")
block_router = resource("/blocks/{block_id}/identities", "identities")


@router.get("/", summary="List identities", response_model=None)
async def list_identities(
    api: CallerApi,
    page: Page50,
    name: Annotated[
        str | None,
        Query(max_length=NAME_CHARS_MAX, description="Return only identities whose name contains this text."),
    ] = None,
    project_id: str | None = None,
    identifier_key: Annotated[str | None, Query(max_length=KEY_CHARS_MAX)] = None,
    identity_type: IdentityType | None = None,
) -> JsonAnswer:
    found = await api.identities.page(IdentityQuery(page, name, project_id, identifier_key, identity_type))
    return await listed(found, identity_shape)


@router.get("/count", summary="Count identities", response_model=None)
async def count_identities(api: CallerApi) -> JsonAnswer:
    return JsonAnswer(await api.identities.count())


@router.post("/", summary="Create an identity", response_model=None)
async def create_identity(api: CallerApi, body: CreateIdentity) -> JsonAnswer:
    return JsonAnswer(identity_shape(await api.identities.create(new_identity(body))))


@router.put("/", summary="Create an identity, or update the one with this key", response_model=None)
async def upsert_identity(api: CallerApi, body: CreateIdentity) -> JsonAnswer:
    return JsonAnswer(identity_shape(await api.identities.upsert(new_identity(body))))


@router.get("/{identity_id}", summary="Get an identity", response_model=None)
async def retrieve_identity(api: CallerApi, identity_id: IdentityPath) -> JsonAnswer:
    return JsonAnswer(identity_shape(await api.identities.get(identity_id)))


@router.patch("/{identity_id}", summary="Update an identity", response_model=None)
async def update_identity(api: CallerApi, identity_id: IdentityPath, body: UpdateIdentity) -> JsonAnswer:
    return JsonAnswer(identity_shape(await api.identities.update(identity_id, identity_changes(body))))


@router.delete("/{identity_id}", summary="Delete an identity", response_model=None)
async def delete_identity(api: CallerApi, identity_id: IdentityPath) -> JsonAnswer:
    await api.identities.delete(identity_id)
    return JsonAnswer(None)


@router.put("/{identity_id}/properties", summary="Set an identity's properties", response_model=None)
async def set_properties(api: CallerApi, identity_id: IdentityPath, body: Properties) -> JsonAnswer:
    return JsonAnswer(identity_shape(await api.identities.set_properties(identity_id, properties_of(body))))


@router.get("/{identity_id}/blocks", summary="List an identity's blocks", response_model=None)
async def list_identity_blocks(api: CallerApi, identity_id: IdentityPath, page: Page50) -> JsonAnswer:
    await api.identities.get(identity_id)
    query = BlockQuery(page=page, identity_id=identity_id, show_hidden=True)
    return await listed(await api.blocks.page(query), block_shape)


@block_router.patch("/attach/{identity_id}", summary="Attach an identity to a block", response_model=None)
async def attach_to_block(api: CallerApi, block_id: BlockPath, identity_id: IdentityPath) -> JsonAnswer:
    return JsonAnswer(block_shape(await api.identities.attach_to_block(block_id, identity_id)))


@block_router.patch("/detach/{identity_id}", summary="Detach an identity from a block", response_model=None)
async def detach_from_block(api: CallerApi, block_id: BlockPath, identity_id: IdentityPath) -> JsonAnswer:
    return JsonAnswer(block_shape(await api.identities.detach_from_block(block_id, identity_id)))
