"""The groups resource, which Letta keeps only for older clients: records of agents that belong together."""

from typing import Annotated

from fastapi import HTTPException, Query

from kelpie.core.agents.groups import GroupQuery, ManagerType
from kelpie.core.conversations.messages import MessageQuery
from kelpie.server.http.caller_api import House
from kelpie.server.http.json_answer import Answer
from kelpie.server.http.paging import LIMIT_MAX, Order, Page50Ascending, Page100, message_cursor
from kelpie.server.http.path_ids import AgentPath, BlockPath, GroupPath, MessagePath
from kelpie.server.http.router import resource
from kelpie.server.letta.groups.body import CreateGroup, UpdateGroup, group_changes, new_group
from kelpie.server.letta.groups.shape import group_shape
from kelpie.server.letta.messages.shape import View, messages

router = resource("/groups", "groups")
agent_router = resource("/agents/{agent_id}", "groups")


@router.get("/", summary="List groups", deprecated=True, response_model=None)
async def list_groups(
    kelpie: House,
    page: Page50Ascending,
    manager_type: ManagerType | None = None,
    project_id: str | None = None,
    show_hidden_groups: bool = False,
) -> Answer:
    query = GroupQuery(page, manager_type, project_id, show_hidden=show_hidden_groups)
    return Answer([group_shape(group) for group in await kelpie.groups.list(query)])


@router.post("/", summary="Make a group", deprecated=True, response_model=None)
async def create_group(kelpie: House, body: CreateGroup) -> Answer:
    return Answer(group_shape(await kelpie.groups.create(new_group(body))))


@router.get("/count", summary="Count groups", deprecated=True, response_model=None)
async def count_groups(kelpie: House) -> Answer:
    return Answer(await kelpie.groups.count())


@router.get("/{group_id}", summary="Read a group", deprecated=True, response_model=None)
async def retrieve_group(kelpie: House, group_id: GroupPath) -> Answer:
    return Answer(group_shape(await kelpie.groups.get(group_id)))


@router.patch("/{group_id}", summary="Change a group", deprecated=True, response_model=None)
async def update_group(kelpie: House, group_id: GroupPath, body: UpdateGroup) -> Answer:
    return Answer(group_shape(await kelpie.groups.update(group_id, group_changes(body))))


@router.delete("/{group_id}", summary="Remove a group", deprecated=True, response_model=None)
async def delete_group(kelpie: House, group_id: GroupPath) -> Answer:
    await kelpie.groups.delete(group_id)
    return Answer({"message": f"Group id={group_id} successfully deleted"})


@router.patch(
    "/{group_id}/blocks/attach/{block_id}", summary="Share a block in a group", deprecated=True, response_model=None
)
async def attach_group_block(kelpie: House, group_id: GroupPath, block_id: BlockPath) -> Answer:
    await kelpie.groups.attach_block(group_id, block_id)
    return Answer(None)


@router.patch(
    "/{group_id}/blocks/detach/{block_id}", summary="Take a block from a group", deprecated=True, response_model=None
)
async def detach_group_block(kelpie: House, group_id: GroupPath, block_id: BlockPath) -> Answer:
    await kelpie.groups.detach_block(group_id, block_id)
    return Answer(None)


@router.get("/{group_id}/messages", summary="Read what was said in a group", deprecated=True, response_model=None)
async def list_group_messages(
    kelpie: House,
    group_id: GroupPath,
    before: Annotated[str | None, Query(description="Only messages older than this one.")] = None,
    after: Annotated[str | None, Query(description="Only messages newer than this one.")] = None,
    limit: Annotated[int | None, Query(ge=0, le=LIMIT_MAX)] = 10,
    order: Order = "desc",
    use_assistant_message: bool = True,
    assistant_message_tool_name: str = "send_message",
    assistant_message_tool_kwarg: str = "message",
    include_return_message_types: Annotated[list[str] | None, Query()] = None,
) -> Answer:
    query = MessageQuery(10 if limit is None else limit, message_cursor(after), message_cursor(before), order == "desc")
    types = None if include_return_message_types is None else frozenset(include_return_message_types)
    view = View(use_assistant_message, assistant_message_tool_name, assistant_message_tool_kwarg, types)
    return Answer(messages(await kelpie.groups.messages(group_id, query), view))


@router.patch("/{group_id}/messages/{message_id}", summary="Refused: messages stay as they are", deprecated=True)
async def edit_group_message(group_id: GroupPath, message_id: MessagePath) -> None:
    raise HTTPException(405, "Messages cannot be edited; send a new one.")


@router.patch(
    "/{group_id}/reset-messages", summary="Delete what was said in a group", deprecated=True, response_model=None
)
async def reset_group_messages(kelpie: House, group_id: GroupPath) -> Answer:
    await kelpie.groups.reset_messages(group_id)
    return Answer(None)


@agent_router.get("/groups", summary="List the groups of an agent", response_model=None)
async def list_agent_groups(
    kelpie: House, agent_id: AgentPath, page: Page100, manager_type: ManagerType | None = None
) -> Answer:
    query = GroupQuery(page, manager_type, agent_id=agent_id, show_hidden=True)
    return Answer([group_shape(group) for group in await kelpie.groups.list(query)])
