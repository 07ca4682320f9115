"""Messages of all agents: list, search, and capture from elsewhere.

A search reports its mode in headers, and the reason when that is not the requested one: its results are a bare list.
"""

from typing import Annotated

from fastapi import Query

from kelpie.core.conversations.messages import MessageQuery
from kelpie.core.paging import PAGE_BYTES_MAX
from kelpie.server.http.headers.search_headers import mode_headers
from kelpie.server.http.json_answer import JsonAnswer, joined
from kelpie.server.http.paging import LIMIT_MAX, Order, message_cursor
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.message_search.body import (
    CaptureMessages,
    SearchAgentMessages,
    SearchMessages,
    WarmCache,
    captured,
    page_of,
    search_of,
)
from kelpie.server.letta.message_search.shape import found_shape, ranked_shape
from kelpie.server.letta.messages.shape import View, wire_messages
from kelpie.server.letta.runs.routes import conversation_of

router = resource("", "messages")


@router.get("/messages/", summary="List the messages of all agents", response_model=None)
async def list_all_messages(
    api: CallerApi,
    before: Annotated[str | None, Query(description="Return only messages older than this one.")] = None,
    after: Annotated[str | None, Query(description="Return only messages newer than this one.")] = None,
    limit: Annotated[int | None, Query(ge=0, le=LIMIT_MAX)] = 100,
    order: Annotated[Order, Query(description="Whether to return the newest or the oldest messages.")] = "desc",
    conversation_id: str | None = None,
    include_return_message_types: Annotated[list[str] | None, Query()] = None,
) -> JsonAnswer:
    query = MessageQuery(
        limit=100 if limit is None else limit,
        after=message_cursor(after),
        before=message_cursor(before),
        descending=order == "desc",
        conversation_id=conversation_of(conversation_id),
        bytes_max=PAGE_BYTES_MAX,
    )
    types = None if include_return_message_types is None else frozenset(include_return_message_types)
    return await joined(await api.message_search.page(query), lambda row: wire_messages(row, View(types=types)))


@router.post("/messages/search", summary="Search the messages of all agents", response_model=None)
async def search_all_messages(api: CallerApi, body: SearchMessages) -> JsonAnswer:
    recalled = await api.message_search.search(search_of(body))
    found = [found_shape(message, hit) for message, hit in page_of(body, recalled.found)]
    return JsonAnswer(found, headers=mode_headers(recalled.mode, recalled.lacking, recalled.lost))


@router.post(
    "/agents/messages/search", summary="Search messages, with their agents and conversations", response_model=None
)
async def search_agent_messages(api: CallerApi, body: SearchAgentMessages) -> JsonAnswer:
    recalled, user = await api.message_search.search(search_of(body)), api.caller.user_id
    places = enumerate(page_of(body, recalled.found), 1 + (body.page or 0) * body.limit)
    found = [ranked_shape(message, hit, place, user) for place, (message, hit) in places]
    return JsonAnswer(found, headers=mode_headers(recalled.mode, recalled.lacking, recalled.lost))


@router.post("/_internal_search/cache-warm", summary="Accepted, without effect: there is no cache", response_model=None)
async def warm_search_cache(body: WarmCache) -> JsonAnswer:
    return JsonAnswer({"collection": body.collection, "status": "no cache to warm", "warmed": False})


@router.post(
    "/agents/{agent_id}/messages/capture",
    summary="Store messages from another system in an agent's history",
    response_model=None,
)
async def capture_messages(api: CallerApi, agent_id: AgentPath, body: CaptureMessages) -> JsonAnswer:
    kept = await api.message_search.add(agent_id, captured(body))
    return JsonAnswer({"success": True, "messages_created": len(kept), "run_ids": []})
