"""The folders and files of an agent."""

from typing import Annotated

from fastapi import Query

from kelpie.core.agents.agent import AgentView
from kelpie.server.http.headers.sdk_version import SdkV1
from kelpie.server.http.json_answer import JsonAnswer, built, listed
from kelpie.server.http.paging import After, Before, Order, Page100, limit_query, page_of
from kelpie.server.http.path_ids import AgentPath, FilePath, FolderPath, SourcePath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.agents.routes import shape
from kelpie.server.letta.folders.routes import folder_shapes
from kelpie.server.letta.folders.shape import view_shape

folder_router = resource("/agents/{agent_id}/folders", "folders")
source_router = resource("/agents/{agent_id}/sources", "sources")
file_router = resource("/agents/{agent_id}/files", "files")

CursorQuery = Annotated[str | None, Query(description="The same as `after`.", deprecated=True)]
OpenQuery = Annotated[bool | None, Query(description="Return only files that are open, or only closed ones.")]


@folder_router.get("", summary="List an agent's folders", response_model=None)
async def list_agent_folders(api: CallerApi, agent_id: AgentPath, page: Page100) -> JsonAnswer:
    return await listed(await folder_shapes(api, await api.attached_files.folders(agent_id, page), source=True), dict)


@folder_router.patch("/attach/{folder_id}", summary="Attach a folder to an agent", response_model=None)
async def attach_folder(api: CallerApi, agent_id: AgentPath, folder_id: FolderPath, sdk_v1: SdkV1) -> JsonAnswer:
    return await _changed(api, await api.attached_files.attach(agent_id, folder_id), sdk_v1)


@folder_router.patch("/detach/{folder_id}", summary="Detach a folder from an agent", response_model=None)
async def detach_folder(api: CallerApi, agent_id: AgentPath, folder_id: FolderPath, sdk_v1: SdkV1) -> JsonAnswer:
    return await _changed(api, await api.attached_files.detach(agent_id, folder_id), sdk_v1)


async def _changed(api: CallerApi, view: AgentView, sdk_v1: bool) -> JsonAnswer:
    return JsonAnswer(None if sdk_v1 else await shape(api, api.agents.with_status(view)))


@source_router.get("", summary="List an agent's sources", response_model=None, deprecated=True)
async def list_agent_sources(api: CallerApi, agent_id: AgentPath, page: Page100) -> JsonAnswer:
    return await list_agent_folders(api, agent_id, page)


@source_router.patch("/attach/{source_id}", summary="Attach a source to an agent", response_model=None, deprecated=True)
async def attach_source(api: CallerApi, agent_id: AgentPath, source_id: SourcePath) -> JsonAnswer:
    return await _changed(api, await api.attached_files.attach(agent_id, source_id), sdk_v1=False)


@source_router.patch(
    "/detach/{source_id}", summary="Detach a source from an agent", response_model=None, deprecated=True
)
async def detach_source(api: CallerApi, agent_id: AgentPath, source_id: SourcePath) -> JsonAnswer:
    return await _changed(api, await api.attached_files.detach(agent_id, source_id), sdk_v1=False)


@file_router.get("", summary="List an agent's files", response_model=None)
async def list_agent_files(
    api: CallerApi,
    agent_id: AgentPath,
    before: Before = None,
    after: After = None,
    cursor: CursorQuery = None,
    limit: int | None = limit_query(100),
    order: Order = "desc",
    order_by: Annotated[str, Query(pattern="^created_at$")] = "created_at",
    is_open: OpenQuery = None,
) -> JsonAnswer:
    page = page_of(before, after or cursor, limit, order, order_by)
    found = await api.attached_files.files(agent_id, page, is_open)
    files = await built(found.files, lambda view: view_shape(agent_id, view))
    return JsonAnswer({"files": files, "next_cursor": found.next_cursor(agent_id), "has_more": found.has_more})


@file_router.patch("/close-all", summary="Close all files of an agent", response_model=None)
async def close_all_files(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    return JsonAnswer(await api.attached_files.close_all(agent_id))


@file_router.patch("/{file_id}/open", summary="Open a file for an agent", response_model=None)
async def open_file(api: CallerApi, agent_id: AgentPath, file_id: FilePath) -> JsonAnswer:
    return JsonAnswer(await api.attached_files.open(agent_id, file_id))


@file_router.patch("/{file_id}/close", summary="Close a file for an agent", response_model=None)
async def close_file(api: CallerApi, agent_id: AgentPath, file_id: FilePath) -> JsonAnswer:
    await api.attached_files.close(agent_id, file_id)
    return JsonAnswer({"message": f"File id={file_id} successfully closed"})
