"""The groups resource, which Letta keeps only for older clients: records of agents that belong together."""

from typing import Annotated

from fastapi import Query

from kelpie.core.agents.groups import GroupQuery, ManagerType
from kelpie.core.conversations.messages import MessageQuery
from kelpie.core.paging import PAGE_BYTES_MAX
from kelpie.server.http.errors import Refused
from kelpie.server.http.json_answer import JsonAnswer, joined, listed
from kelpie.server.http.paging import LIMIT_MAX, Order, Page50Ascending, Page100, message_cursor
from kelpie.server.http.path_ids import AgentPath, BlockPath, GroupPath, MessagePath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.groups.body import CreateGroup, UpdateGroup, group_changes, new_group
from kelpie.server.letta.groups.shape import group_shape
from kelpie.server.letta.messages.shape import View, wire_messages

router = resource("/groups", "groups")
agent_router = resource("/agents/{agent_id}", "groups")


@router.get("/", summary="List groups", deprecated=True, response_model=None)
async def list_groups(
    api: CallerApi,
    page: Page50Ascending,
    manager_type: ManagerType | None = None,
    project_id: str | None = None,
    show_hidden_groups: bool = False,
) -> JsonAnswer:
    query = GroupQuery(page, manager_type, project_id, show_hidden=show_hidden_groups)
    return await listed(await api.groups.page(query), group_shape)


@router.post("/", summary="Create a group", deprecated=True, response_model=None)
async def create_group(api: CallerApi, body: CreateGroup) -> JsonAnswer:
    return JsonAnswer(group_shape(await api.groups.create(new_group(body))))


@router.get("/count", summary="Count groups", deprecated=True, response_model=None)
async def count_groups(api: CallerApi) -> JsonAnswer:
    return JsonAnswer(await api.groups.count())


@router.get("/{group_id}", summary="Get a group", deprecated=True, response_model=None)
async def retrieve_group(api: CallerApi, group_id: GroupPath) -> JsonAnswer:
    return JsonAnswer(group_shape(await api.groups.get(group_id)))


@router.patch("/{group_id}", summary="Update a group", deprecated=True, response_model=None)
async def update_group(api: CallerApi, group_id: GroupPath, body: UpdateGroup) -> JsonAnswer:
    return JsonAnswer(group_shape(await api.groups.update(group_id, group_changes(body))))


@router.delete("/{group_id}", summary="Delete a group", deprecated=True, response_model=None)
async def delete_group(api: CallerApi, group_id: GroupPath) -> JsonAnswer:
    await api.groups.delete(group_id)
    return JsonAnswer({"message": f"Group id={group_id} successfully deleted"})


@router.patch(
    "/{group_id}/blocks/attach/{block_id}", summary="Attach a block to a group", deprecated=True, response_model=None
)
async def attach_group_block(api: CallerApi, group_id: GroupPath, block_id: BlockPath) -> JsonAnswer:
    await api.groups.attach_block(group_id, block_id)
    return JsonAnswer(None)


@router.patch(
    "/{group_id}/blocks/detach/{block_id}", summary="Detach a block from a group", deprecated=True, response_model=None
)
async def detach_group_block(api: CallerApi, group_id: GroupPath, block_id: BlockPath) -> JsonAnswer:
    await api.groups.detach_block(group_id, block_id)
    return JsonAnswer(None)


@router.get("/{group_id}/messages", summary="List the messages of a group", deprecated=True, response_model=None)
async def list_group_messages(
    api: CallerApi,
    group_id: GroupPath,
    before: Annotated[str | None, Query(description="Return only messages older than this one.")] = None,
    after: Annotated[str | None, Query(description="Return only messages newer than this one.")] = None,
    limit: Annotated[int | None, Query(ge=0, le=LIMIT_MAX)] = 10,
    order: Order = "desc",
    use_assistant_message: bool = True,
    assistant_message_tool_name: str = "send_message",
    assistant_message_tool_kwarg: str = "message",
    include_return_message_types: Annotated[list[str] | None, Query()] = None,
) -> JsonAnswer:
    query = MessageQuery(
        10 if limit is None else limit,
        message_cursor(after),
        message_cursor(before),
        order == "desc",
        bytes_max=PAGE_BYTES_MAX,
    )
    types = None if include_return_message_types is None else frozenset(include_return_message_types)
    view = View(use_assistant_message, assistant_message_tool_name, assistant_message_tool_kwarg, types)
    return await joined(await api.groups.messages(group_id, query), lambda row: wire_messages(row, view))


@router.patch("/{group_id}/messages/{message_id}", summary="Not supported: messages cannot be changed", deprecated=True)
async def edit_group_message(group_id: GroupPath, message_id: MessagePath) -> None:
    raise Refused("method_not_allowed", "Messages cannot be edited; send a new one.")


@router.patch(
    "/{group_id}/reset-messages", summary="Delete the messages of a group", deprecated=True, response_model=None
)
async def reset_group_messages(api: CallerApi, group_id: GroupPath) -> JsonAnswer:
    await api.groups.reset_messages(group_id)
    return JsonAnswer(None)


@agent_router.get("/groups", summary="List the groups of an agent", response_model=None)
async def list_agent_groups(
    api: CallerApi, agent_id: AgentPath, page: Page100, manager_type: ManagerType | None = None
) -> JsonAnswer:
    query = GroupQuery(page, manager_type, agent_id=agent_id, show_hidden=True)
    return await listed(await api.groups.page(query), group_shape)
