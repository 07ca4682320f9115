"""API keys: created, listed and revoked by a caller with the scope `admin`. The key itself is in one answer only."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.access.callers import NAME_CHARS_MAX
from kelpie.core.access.credential_scopes import ApiKey, NewKey, Scope
from kelpie.core.ids import AgentId, ProjectId, UserId
from kelpie.core.time import from_datetime
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.limits.request_limits import Links
from kelpie.server.http.paging import Page50
from kelpie.server.http.path_ids import KeyPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp

router = resource("/kelpie/keys", "keys (Kelpie)")


class CreateKey(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=NAME_CHARS_MAX, description="Name of the key.")
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))] = Field(
        [Scope.write], description="`read`, `write` (includes read) or `admin` (includes both)."
    )
    user_id: str | None = Field(None, description="The owner of the key. Defaults to the caller.")
    agent_ids: Links | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="Limit the key to these agents. Defaults to all agents of the organization.",
    )
    project_ids: Links | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="Limit the key to the agents that are in these projects, whenever they join or leave.",
    )
    expires_at: datetime | None = Field(None, description="When the key expires. Defaults to never.")


@router.post("", summary="Create an API key; only this answer shows it (Kelpie)", response_model=None)
async def create(api: CallerApi, body: CreateKey) -> JsonAnswer:
    new = NewKey(
        name=body.name,
        scopes=tuple(body.scopes),
        user_id=None if body.user_id is None else UserId.parse(body.user_id),
        agent_ids=None if body.agent_ids is None else tuple(AgentId.parse(each) for each in body.agent_ids),
        project_ids=None if body.project_ids is None else tuple(ProjectId.parse(each) for each in body.project_ids),
        expires_at=None if body.expires_at is None else from_datetime(body.expires_at),
    )
    key, text = await api.api_keys.create(new)
    return JsonAnswer({**key_shape(key), "key": text})


@router.get("", summary="List API keys, without their secrets (Kelpie)", response_model=None)
async def list_keys(api: CallerApi, page: Page50) -> JsonAnswer:
    return await listed(await api.api_keys.page(page), key_shape)


@router.get("/{key_id}", summary="Get an API key, without its secret (Kelpie)", response_model=None)
async def retrieve(api: CallerApi, key_id: KeyPath) -> JsonAnswer:
    return JsonAnswer(key_shape(await api.api_keys.get(key_id)))


@router.delete("/{key_id}", summary="Revoke an API key (Kelpie)", response_model=None)
async def revoke(api: CallerApi, key_id: KeyPath) -> JsonAnswer:
    return JsonAnswer(key_shape(await api.api_keys.revoke(key_id)))


def key_shape(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "user_id": key.user_id,
        "organization_id": key.organization_id,
        "scopes": [scope.value for scope in key.scopes],
        "agent_ids": None if key.agent_ids is None else list(key.agent_ids),
        "project_ids": None if key.project_ids is None else list(key.project_ids),
        "hint": key.hint,
        "created_at": timestamp(key.created_at),
        "expires_at": timestamp(key.expires_at),
        "last_used_at": timestamp(key.last_used_at),
    }
