"""The conversations resource: conversations of an agent, their records and messages.

The agent's own conversation has the name `default`.
"""

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from kelpie.core.conversations.conversations import ArchiveStatus, ConversationQuery, ThreadQuery
from kelpie.core.conversations.messages import MessageQuery
from kelpie.core.errors import InvalidId, NotFound
from kelpie.core.ids import DEFAULT_CONVERSATION, AgentId, ConversationId, MessageId
from kelpie.core.paging import PAGE_BYTES_MAX
from kelpie.server.http.json_answer import JsonAnswer, joined, listed
from kelpie.server.http.limits.request_limits import Part
from kelpie.server.http.paging import LIMIT_MAX, After, Order, limit_query, message_cursor, page_of
from kelpie.server.http.path_ids import ConversationPath, ThreadPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.conversations.body import (
    CreateConversation,
    UpdateConversation,
    conversation_changes,
    new_conversation,
)
from kelpie.server.letta.conversations.shape import conversation_shape
from kelpie.server.letta.messages.body import ThreadSendBody
from kelpie.server.letta.messages.routes import STREAMS, respond
from kelpie.server.letta.messages.shape import View, wire_messages

router = resource("/conversations", "conversations")

OfAgent = Annotated[str | None, Query(description="The agent whose default conversation to use.")]


class ThreadBody(BaseModel):
    """The agent whose default conversation is meant, where the path says `default`."""

    model_config = ConfigDict(extra="ignore")

    agent_id: str | None = None


@router.post("/", summary="Create a conversation with an agent", response_model=None)
async def create_conversation(api: CallerApi, agent_id: str, body: CreateConversation | None = None) -> JsonAnswer:
    new = new_conversation(body or CreateConversation())
    return JsonAnswer(conversation_shape(await api.conversations.create(AgentId.parse(agent_id), new)))


@router.get("/", summary="List conversations", response_model=None)
async def list_conversations(
    api: CallerApi,
    agent_id: str | None = None,
    limit: int = limit_query(50),
    after: After = None,
    summary_search: Part = None,
    archive_status: ArchiveStatus = ArchiveStatus.all,
    show_hidden_conversations: Annotated[
        bool, Query(description="Include conversations created with `hidden` (Kelpie).")
    ] = False,
    order: Order = "desc",
    order_by: Literal["created_at", "last_run_completion", "last_message_at"] = "created_at",
) -> JsonAnswer:
    query = ConversationQuery(
        page=page_of(None, after, limit, order, order_by),
        agent_id=None if agent_id is None else AgentId.parse(agent_id),
        summary_search=summary_search,
        archive_status=archive_status,
        show_hidden=show_hidden_conversations,
    )
    return await listed(await api.conversations.page(query), conversation_shape)


@router.get("/{conversation_id}", summary="Get a conversation", response_model=None)
async def retrieve_conversation(api: CallerApi, conversation_id: ConversationPath) -> JsonAnswer:
    return JsonAnswer(conversation_shape(*await api.conversations.get(conversation_id)))


@router.patch("/{conversation_id}", summary="Update a conversation", response_model=None)
async def update_conversation(
    api: CallerApi, conversation_id: ConversationPath, body: UpdateConversation
) -> JsonAnswer:
    changes = conversation_changes(body, api.world.clock.now())
    return JsonAnswer(conversation_shape(await api.conversations.update(conversation_id, changes)))


@router.delete("/{conversation_id}", summary="Delete a conversation", response_model=None)
async def delete_conversation(api: CallerApi, conversation_id: ConversationPath) -> JsonAnswer:
    await api.conversations.delete(conversation_id)
    return JsonAnswer(None)


@router.post("/{conversation_id}/fork", summary="Fork a conversation", response_model=None)
async def fork_conversation(
    api: CallerApi,
    conversation_id: ThreadPath,
    agent_id: OfAgent = None,
    message_id: Annotated[str | None, Query(description="The last message to copy.")] = None,
    hidden: bool = False,
) -> JsonAnswer:
    origin = thread_of(conversation_id, agent_id)
    forked = await api.conversations.fork(origin, up_to=message_cursor(message_id), hidden=hidden)
    return JsonAnswer(conversation_shape(forked))


@router.post("/{conversation_id}/recompile", summary="Rebuild a conversation's system message", response_model=None)
async def recompile_conversation(
    api: CallerApi, conversation_id: ThreadPath, dry_run: bool = False, body: ThreadBody | None = None
) -> JsonAnswer:
    thread = thread_of(conversation_id, body.agent_id if body else None)
    if isinstance(thread, AgentId):
        return JsonAnswer(await api.histories.recompile(thread, dry_run))
    return JsonAnswer(await api.conversations.recompile(thread, dry_run))


@router.post(
    "/{conversation_id}/messages",
    summary="Send messages in a conversation",
    responses=STREAMS,
    response_model=None,
)
async def send_in_conversation(api: CallerApi, conversation_id: ThreadPath, body: ThreadSendBody) -> Response:
    agent_id, lane = await api.conversations.lane(thread_of(conversation_id, body.agent_id))
    return await respond(api, agent_id, body, streaming=body.streaming, conversation=lane)


@router.get("/{conversation_id}/messages", summary="List a conversation's messages", response_model=None)
async def list_conversation_messages(
    api: CallerApi,
    conversation_id: ThreadPath,
    agent_id: OfAgent = None,
    before: Annotated[str | None, Query(description="Return only messages older than this one.")] = None,
    after: Annotated[
        str | None,
        Query(description="Continue the list after this message: with older ones in descending order, else newer."),
    ] = None,
    limit: Annotated[int | None, Query(ge=0, le=LIMIT_MAX)] = 100,
    order: Order = "desc",
    order_by: Literal["created_at"] = "created_at",
    group_id: str | None = None,
    include_err: bool | None = None,
    include_return_message_types: Annotated[list[str] | None, Query()] = None,
) -> JsonAnswer:
    types = None if include_return_message_types is None else frozenset(include_return_message_types)
    if conversation_id == DEFAULT_CONVERSATION and agent_id is None:
        return JsonAnswer([])  # a default conversation without an agent: as with one that does not exist
    thread, count, newest = thread_of(conversation_id, agent_id), 100 if limit is None else limit, order == "desc"
    if isinstance(thread, AgentId):
        page = MessageQuery(
            count,
            message_cursor(after),
            message_cursor(before),
            newest,
            conversation_id=DEFAULT_CONVERSATION,
            bytes_max=PAGE_BYTES_MAX,
        )
        found = await api.histories.messages(thread, page)
        rows = [row for row in found if group_id is None or row.group_id == group_id]
    else:
        query = ThreadQuery(count, _known(after), _known(before), newest, group_id, PAGE_BYTES_MAX)
        rows = await api.conversations.messages(thread, query)
    return await joined(rows, lambda row: wire_messages(row, View(types=types)))


def thread_of(conversation_id: str, agent_id: str | None) -> ConversationId | AgentId:
    """The conversation, or the agent whose default one is meant. Raises NotFound for a default one without an agent."""
    if conversation_id.startswith("agent-"):
        return AgentId(conversation_id)
    if conversation_id != DEFAULT_CONVERSATION:
        return ConversationId(conversation_id)
    if agent_id is None:
        missing = NotFound("Conversation", conversation_id)
        missing.args = (f"{missing}. Send the agent_id whose default conversation you mean",)
        raise missing
    return AgentId.parse(agent_id)


def _known(text: str | None) -> MessageId | None:
    """A cursor that is ignored when it is invalid."""
    try:
        return None if text is None else MessageId.parse(text)
    except InvalidId:
        return None
