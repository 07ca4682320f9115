"""Access tokens for pages in a browser. The text of a token is shown once; lists show its id in its place."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, Field

from kelpie.core.access.credential_scopes import Access, AccessToken, Grant
from kelpie.core.ids import AgentId
from kelpie.core.time import from_datetime
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp

router = resource("/client-side-access-tokens", "access tokens")

LIST_MAX = 1000
OFFSET_MAX = 1_000_000


class PolicyBody(BaseModel):
    """The access of the token to one agent."""

    type: Literal["agent"]
    id: str = Field(description="The id of the agent.")
    access: list[Access] = Field(min_length=1, max_length=len(Access))


class CreateToken(BaseModel):
    hostname: str = Field(
        max_length=2000, description="The site whose pages use the token, such as `https://app.example.com`."
    )
    policy: list[PolicyBody] = Field(max_length=1000)
    expires_at: datetime | None = Field(None, description="When the token expires. Defaults to five minutes from now.")


@router.post("", summary="Create an access token for specific agents", response_model=None)
async def create(api: CallerApi, body: CreateToken) -> JsonAnswer:
    policy = [Grant(AgentId.parse(each.id), tuple(each.access)) for each in body.policy]
    expires = None if body.expires_at is None else from_datetime(body.expires_at)
    token, text = await api.access_tokens.create(body.hostname, policy, expires)
    return JsonAnswer(token_shape(token, text))


@router.get("", summary="List access tokens that have not expired", response_model=None)
async def list_tokens(
    api: CallerApi,
    agent_id: Annotated[str | None, Query(alias="agentId", description="Return only tokens for this agent.")] = None,
    limit: Annotated[float, Query(ge=1, le=LIST_MAX)] = 10,
    offset: Annotated[float, Query(ge=0, le=OFFSET_MAX)] = 0,
) -> JsonAnswer:
    wanted = None if agent_id is None else AgentId.parse(agent_id)
    found, more = await api.access_tokens.page(wanted, int(limit), int(offset))
    return JsonAnswer({"tokens": [token_shape(each, each.id) for each in found], "hasNextPage": more})


@router.delete("/{token}", summary="Delete an access token", response_model=None)
async def delete(
    api: CallerApi, token: Annotated[str, Path(max_length=200, description="The token itself, or its id.")]
) -> JsonAnswer:
    await api.access_tokens.delete(token)
    return JsonAnswer({})


def token_shape(token: AccessToken, named: str) -> dict[str, Any]:
    return {
        "token": named,
        "hostname": token.hostname,
        "expiresAt": timestamp(token.expires_at),
        "policy": {
            "version": "1",
            "data": [
                {"type": "agent", "id": grant.agent_id, "access": [each.value for each in grant.access]}
                for grant in token.policy
            ],
        },
    }
