"""Model providers that an organization adds with its own keys."""

from typing import Annotated

from fastapi import Query

from kelpie.core.models.model_providers import NAME_CHARS_MAX, ProviderQuery
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import Page50
from kelpie.server.http.path_ids import ProviderPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.providers.body import (
    CheckProvider,
    CreateProvider,
    Kind,
    UpdateProvider,
    access_of,
    changes_of,
)
from kelpie.server.letta.providers.shape import provider_shape

router = resource("/providers", "providers")


@router.get("", include_in_schema=False, response_model=None)  # Letta Code asks without the slash
@router.get("/", summary="List providers that were added over the API", response_model=None)
async def list_providers(
    api: CallerApi,
    page: Page50,
    name: Annotated[str | None, Query(max_length=NAME_CHARS_MAX)] = None,
    provider_type: Kind | None = None,
) -> JsonAnswer:
    return await listed(await api.providers.page(ProviderQuery(page, name, provider_type)), provider_shape)


@router.post("", include_in_schema=False, response_model=None)
@router.post("/", summary="Add a provider with a key of your own", response_model=None)
async def create_provider(api: CallerApi, body: CreateProvider) -> JsonAnswer:
    """Its models can be used at once, as `name/model`, by the agents of the organization. The key is stored encrypted
    and never shown."""
    return JsonAnswer(provider_shape(await api.providers.create(body.name, access_of(body))))


@router.post("/check", summary="Check a key without storing it", response_model=None)
async def check_provider(api: CallerApi, body: CheckProvider) -> JsonAnswer:
    await api.providers.check(access_of(body))
    return _valid(body.provider_type)


@router.get("/{provider_id}", summary="Get a provider", response_model=None)
async def retrieve_provider(api: CallerApi, provider_id: ProviderPath) -> JsonAnswer:
    return JsonAnswer(provider_shape(await api.providers.get(provider_id)))


@router.patch("/{provider_id}", summary="Change the key or address of a provider", response_model=None)
async def modify_provider(api: CallerApi, provider_id: ProviderPath, body: UpdateProvider) -> JsonAnswer:
    """The change counts for the next model call. A new host needs the key in the same request."""
    return JsonAnswer(provider_shape(await api.providers.update(provider_id, changes_of(body))))


@router.delete("/{provider_id}", summary="Delete a provider", response_model=None)
async def delete_provider(api: CallerApi, provider_id: ProviderPath) -> JsonAnswer:
    await api.providers.delete(provider_id)
    return JsonAnswer({"message": f"Provider id={provider_id} successfully deleted"})


@router.post("/{provider_id}/check", summary="Check the stored key of a provider", response_model=None)
async def check_existing_provider(api: CallerApi, provider_id: ProviderPath) -> JsonAnswer:
    found = await api.providers.check_stored(provider_id)
    return _valid(found.access.provider_type)


@router.get("/{provider_id}/check", summary="Check the stored key of a provider (Kelpie)", response_model=None)
async def check_with_get(api: CallerApi, provider_id: ProviderPath) -> JsonAnswer:
    return await check_existing_provider(api, provider_id)


@router.patch("/{provider_id}/refresh", summary="List the models of a provider again", response_model=None)
async def refresh_provider(api: CallerApi, provider_id: ProviderPath) -> JsonAnswer:
    return JsonAnswer(provider_shape(await api.providers.refresh(provider_id)))


def _valid(provider_type: str) -> JsonAnswer:
    return JsonAnswer({"message": f"Valid api key for provider_type={provider_type}"})
