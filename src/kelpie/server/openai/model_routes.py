"""The models of OpenAI's API: the agents that the credential may read.

`/v1/models` without a slash at the end is asked by OpenAI's clients and by Letta's: the user agent of the request
decides which of the two lists it is.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request

from kelpie.core.agents.agent import Agent, AgentQuery, Include
from kelpie.core.errors import NotFound
from kelpie.core.paging import Page
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.server.http import route_access
from kelpie.server.http.json_answer import JsonAnswer, built
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.models.routes import list_models as list_letta_models
from kelpie.server.openai.client import NO_MODEL, Client, OpenAiClient
from kelpie.server.openai.router import openai_resource

AGENTS_MAX = 1000  # in the list, the newest; a request may name any other as well
# `OpenAI/Python 2.1`, `AsyncOpenAI/Python 2.1`, `OpenAI/JS 6.0`, and those of other languages alike.
_OPENAI_SDK = re.compile(r"(Async)?(Azure)?OpenAI/[A-Za-z]+ ")

router: APIRouter = openai_resource("openai")
letta_router: APIRouter = resource("", "models")


@router.get("/models", summary="List agents as models", response_model=None)
async def list_models(client: OpenAiClient) -> JsonAnswer:
    return await _listed(client)


@router.get("/models/{model:path}", summary="Get an agent as a model", response_model=None)
async def retrieve_model(client: OpenAiClient, model: str) -> JsonAnswer:
    """The model is the id or the name of an agent, or the handle of an embedding model."""
    try:
        agent_id = await client.agent(model, "GET", "")
        agent = (await client.api.agents.get(agent_id)).agent
    except NotFound:
        for info in await client.api.models.embeddings():
            if model in (info.handle, info.name):
                return JsonAnswer(_shape(model, 0, info.provider_name))
        raise NotFound("Model", model[:200], NO_MODEL) from None
    return JsonAnswer(_agent_shape(agent, model))


@letta_router.get("/models", include_in_schema=False, response_model=None)
async def list_models_of_either(
    request: Request,
    api: CallerApi,
    client: OpenAiClient,
    provider_category: Annotated[list[str] | None, Query()] = None,
    provider_name: str | None = None,
    provider_type: str | None = None,
) -> JsonAnswer:
    if is_openai_sdk(request.headers.get("user-agent", "")):
        return await _listed(client)
    return await list_letta_models(api, provider_category, provider_name, provider_type)


def is_openai_sdk(user_agent: str) -> bool:
    return _OPENAI_SDK.match(user_agent) is not None


async def _listed(client: Client) -> JsonAnswer:
    only = route_access.listed_agents(client.given)
    found = await client.api.agents.page(AgentQuery(page=Page(limit=AGENTS_MAX), only=only), Include())
    agents = [view.agent for view in found]
    names = _unique_names(agents)
    shapes = await built(agents, lambda agent: _agent_shape(agent, names.get(agent.id, agent.id)))
    return JsonAnswer({"object": "list", "data": shapes})


def _unique_names(agents: Sequence[Agent]) -> dict[str, str]:
    """The names by which agents can be named, by their ids."""
    count: dict[str, int] = {}
    for agent in agents:
        count[agent.name] = count.get(agent.name, 0) + 1
    return {agent.id: agent.name for agent in agents if count[agent.name] == 1}


def _agent_shape(agent: Agent, named: str) -> dict[str, Any]:
    shape = _shape(named, agent.created_at // MICROS_PER_SECOND, "kelpie")
    return shape | {"name": agent.name, "description": agent.description, "kelpie_agent_id": agent.id}


def _shape(named: str, created: int, owner: str) -> dict[str, Any]:
    return {"id": named, "object": "model", "created": created, "owned_by": owner}
