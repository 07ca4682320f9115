"""The agents resource: list, read, change, delete; and Kelpie's own start, stop and restart.

Agents are created in `server/letta/templates/routes.py`, because they may be made from a template.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from pydantic import BaseModel
from starlette.requests import Request

from kelpie.core.agents.agent import EVERYTHING, AgentQuery, AgentView, Include
from kelpie.core.conversations.runs import StopReason
from kelpie.server.http.headers.sdk_version import SdkV1
from kelpie.server.http.json_answer import JsonAnswer, built, listed
from kelpie.server.http.limits.request_limits import Part, Several
from kelpie.server.http.paging import After, Before, Order, limit_query, page_of
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.route_access import listed_agents
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.agents.body import UpdateAgent, agent_changes
from kelpie.server.letta.agents.shape import Facts, agent_shape, memory_shape, status_shape
from kelpie.server.letta.blocks.shape import block_shape
from kelpie.server.letta.folders.shape import file_block_shape

router = resource("/agents", "agents")

Relation = Literal[
    "agent.blocks",
    "agent.identities",
    "agent.managed_group",
    "agent.pending_approval",
    "agent.secrets",
    "agent.sources",
    "agent.tags",
    "agent.tools",
]
OrderBy = Literal["created_at", "updated_at", "last_run_completion"]

_NOTHING = Include()
_OLD_NAMES = {  # what `include_relationships` called the relations
    "memory": "agent.blocks",
    "blocks": "agent.blocks",
    "tools": "agent.tools",
    "tags": "agent.tags",
    "secrets": "agent.secrets",
    "identities": "agent.identities",
    "sources": "agent.sources",
    "multi_agent_group": "agent.managed_group",
    "managed_group": "agent.managed_group",
    "tool_exec_environment_variables": "agent.secrets",
}


async def included(
    sdk_v1: SdkV1,
    include: Annotated[list[Relation] | None, Query(description="Relations to load with the agent.")] = None,
    include_relationships: Annotated[list[str] | None, Query(deprecated=True)] = None,
) -> Include:
    """The relations that a client gets: those it names; otherwise none for the 1.x SDKs and all for older clients."""
    asked = {*(include or ()), *(_OLD_NAMES.get(name, name) for name in include_relationships or ())}
    if not asked:
        return _NOTHING if sdk_v1 or include_relationships is not None else EVERYTHING
    return Include(
        blocks="agent.blocks" in asked,
        tools="agent.tools" in asked,
        tags="agent.tags" in asked or "agent.blocks" in asked,
        secrets="agent.secrets" in asked,
        identities="agent.identities" in asked,
        folders="agent.sources" in asked,
        managed_group="agent.managed_group" in asked,
        pending_approval="agent.pending_approval" in asked,
    )


Included = Annotated[Include, Depends(included)]


async def filters(
    name: str | None = None,
    query_text: Part = None,
    tags: Several = None,
    match_all_tags: bool = False,
    project_id: str | None = None,
    template_id: str | None = None,
    base_template_id: str | None = None,
    created_by_id: str | None = None,
    last_stop_reason: StopReason | None = None,
    identity_id: str | None = None,
    identifier_keys: Several = None,
) -> AgentQuery:
    """The filter for agents, hidden ones included."""
    return AgentQuery(
        name=name,
        query_text=query_text,
        tags=tuple(tags or ()),
        match_all_tags=match_all_tags,
        project_id=project_id,
        template_id=template_id,
        base_template_id=base_template_id,
        created_by_id=created_by_id,
        last_stop_reason=last_stop_reason,
        identity_id=identity_id,
        identifier_keys=tuple(identifier_keys or ()),
        show_hidden=True,
    )


Filters = Annotated[AgentQuery, Depends(filters)]


async def selection(
    request: Request,
    query: Filters,
    show_hidden_agents: bool = False,
    before: Before = None,
    after: After = None,
    limit: int | None = limit_query(50),
    order: Order = "desc",
    order_by: OrderBy = "created_at",
    ascending: Annotated[bool, Query(deprecated=True)] = False,
    sort_by: Annotated[OrderBy | None, Query(deprecated=True)] = None,
) -> AgentQuery:
    page = page_of(
        before, after, limit, "asc" if ascending else order, (order_by == "created_at" and sort_by) or order_by
    )
    only = listed_agents(request.scope.get("pass"))
    return replace(query, page=page, only=only, show_hidden=show_hidden_agents)


async def shapes(api: CallerApi, views: Sequence[AgentView], include: Include = EVERYTHING) -> list[dict[str, Any]]:
    """Agents in Letta's JSON. Facts that only the model's provider knows are left out."""
    embeds = any(view.agent.embedding or view.folders for view in views)
    embeddings = {info.handle: info for info in await api.models.known_embeddings()} if embeds else {}
    known = Facts(cache(api.models.known), embeddings, api.encoded_tools)  # most agents of a page share their model
    found = await built(views, lambda view: agent_shape(view, known))
    if not include.tags:
        for agent in found:
            agent["tags"] = []  # a relation like the others, although it is always at hand
    if not api.caller.sees_secrets:
        for agent in found:
            agent["secrets"] = agent["tool_exec_environment_variables"] = []
    return found


async def shape(api: CallerApi, view: AgentView, include: Include = EVERYTHING) -> dict[str, Any]:
    return (await shapes(api, [view], include))[0]


@router.get("/", summary="List agents", response_model=None)
async def list_agents(
    api: CallerApi,
    include: Included,
    query: Annotated[AgentQuery, Depends(selection)],
) -> JsonAnswer:
    return await listed(await shapes(api, await api.agents.page(query, include), include), lambda agent: agent)


@router.get("/count", summary="Count agents", response_model=None)
async def count_agents(api: CallerApi, query: Filters) -> JsonAnswer:
    return JsonAnswer(await api.agents.count(query))


@router.get("/{agent_id}", summary="Get an agent", response_model=None)
async def retrieve_agent(api: CallerApi, agent_id: AgentPath, include: Included) -> JsonAnswer:
    return JsonAnswer(await shape(api, await api.agents.get(agent_id, include), include))


@router.patch("/{agent_id}", summary="Update an agent", response_model=None)
async def update_agent(api: CallerApi, agent_id: AgentPath, body: UpdateAgent) -> JsonAnswer:
    return JsonAnswer(await shape(api, await api.agents.update(agent_id, agent_changes(body))))


@router.delete("/{agent_id}", summary="Delete an agent and its messages", response_model=None)
async def delete_agent(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    await api.agents.delete(agent_id)
    return JsonAnswer({"message": f"Agent id={agent_id} successfully deleted"})


@router.get("/{agent_id}/core-memory", summary="Get an agent's memory blocks", deprecated=True, response_model=None)
async def retrieve_memory(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    view = await api.agents.get(agent_id, Include(blocks=True, folders=True))
    files = [file_block_shape(view.agent, each) for each in view.files]
    return JsonAnswer(memory_shape(view.agent.agent_type, [block_shape(block) for block in view.blocks], files))


class ResetMessages(BaseModel):
    add_default_initial_messages: bool = False


@router.patch("/{agent_id}/reset-messages", summary="Delete an agent's messages", response_model=None)
async def reset_messages(api: CallerApi, agent_id: AgentPath, body: ResetMessages | None = None) -> JsonAnswer:
    add_default_initial = body is not None and body.add_default_initial_messages
    return JsonAnswer(await shape(api, await api.histories.reset(agent_id, add_default_initial)))


@router.post("/{agent_id}/recompile", summary="Rebuild the system prompt", response_model=None)
@router.post("/{agent_id}/system-prompt/recompile", deprecated=True, response_model=None)
async def recompile(
    api: CallerApi, agent_id: AgentPath, dry_run: bool = False, update_timestamp: bool = False
) -> JsonAnswer:
    return JsonAnswer(await api.histories.recompile(agent_id, dry_run))


@router.post("/{agent_id}/start", summary="Start a stopped agent (Kelpie)", response_model=None)
async def start_agent(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    return JsonAnswer(status_shape(await api.agents.start(agent_id)))


@router.post("/{agent_id}/stop", summary="Stop an agent until it is started (Kelpie)", response_model=None)
async def stop_agent(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    return JsonAnswer(status_shape(await api.agents.stop(agent_id)))


@router.post("/{agent_id}/restart", summary="Unload an agent and load it again (Kelpie)", response_model=None)
async def restart_agent(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    return JsonAnswer(status_shape(await api.agents.restart(agent_id)))
