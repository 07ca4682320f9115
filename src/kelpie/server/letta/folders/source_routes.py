"""Folders under their older name, sources. Letta has deprecated these routes; they do the same as those of folders."""

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from kelpie.core.files.files import DuplicateHandling
from kelpie.core.paging import Page
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import LIMIT_MAX, After, Before, limit_query, page_of
from kelpie.server.http.path_ids import FilePath, SourcePath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.folders import routes
from kelpie.server.letta.folders.body import CreateFolder, UpdateFolder, folder_changes, new_folder
from kelpie.server.letta.folders.routes import ContentQuery, DetailQuery, HandlingQuery, UploadNameQuery
from kelpie.server.letta.folders.uploads import FORM, uploaded

router = resource("/sources", "sources")

_ALL = Page(limit=LIMIT_MAX, descending=False)
StatusQuery = Annotated[bool, Query(description="Without effect: the status is always the current one.")]


@router.get("/count", summary="Count sources", response_model=None, deprecated=True)
async def count_sources(api: CallerApi) -> JsonAnswer:
    return await routes.count_folders(api)


@router.get("/metadata", summary="Get the sizes of all sources", response_model=None, deprecated=True)
async def source_metadata(api: CallerApi, include_detailed_per_source_metadata: DetailQuery = False) -> JsonAnswer:
    return JsonAnswer(await routes.stats(api, detailed=include_detailed_per_source_metadata))


@router.get("/name/{source_name}", summary="Get the id of a source by its name", response_model=None, deprecated=True)
async def source_by_name(api: CallerApi, source_name: str) -> JsonAnswer:
    return JsonAnswer((await api.folders.by_name(source_name)).id)


@router.get("/", summary="List sources", response_model=None, deprecated=True)
async def list_sources(api: CallerApi) -> JsonAnswer:
    return await listed(await routes.folder_shapes(api, await api.folders.page(_ALL), source=True), dict)


@router.post("/", summary="Create a source", response_model=None, deprecated=True)
async def create_source(api: CallerApi, body: CreateFolder) -> JsonAnswer:
    made = await api.folders.create(new_folder(body))
    return JsonAnswer((await routes.folder_shapes(api, [made], source=True))[0])


@router.get("/{source_id}", summary="Get a source", response_model=None, deprecated=True)
async def retrieve_source(api: CallerApi, source_id: SourcePath) -> JsonAnswer:
    return JsonAnswer((await routes.folder_shapes(api, [await api.folders.get(source_id)], source=True))[0])


@router.patch("/{source_id}", summary="Update a source", response_model=None, deprecated=True)
async def update_source(api: CallerApi, source_id: SourcePath, body: UpdateFolder) -> JsonAnswer:
    after = await api.folders.update(source_id, folder_changes(body))
    return JsonAnswer((await routes.folder_shapes(api, [after], source=True))[0])


@router.delete("/{source_id}", summary="Delete a source and its files", response_model=None, deprecated=True)
async def delete_source(api: CallerApi, source_id: SourcePath) -> JsonAnswer:
    await api.folders.delete(source_id)
    return JsonAnswer(None)


@router.post(
    "/{source_id}/upload",
    summary="Upload a file",
    response_model=None,
    deprecated=True,
    openapi_extra={"requestBody": FORM},
)
async def upload_to_source(
    api: CallerApi,
    request: Request,
    source_id: SourcePath,
    duplicate_handling: HandlingQuery = DuplicateHandling.suffix,
    name: UploadNameQuery = None,
) -> JsonAnswer:
    return await uploaded(api, request, source_id, duplicate_handling, name)


@router.get("/{source_id}/agents", summary="List the agents that have a source", response_model=None, deprecated=True)
async def list_source_agents(api: CallerApi, source_id: SourcePath) -> JsonAnswer:
    return JsonAnswer(await api.folders.agents_of(source_id, _ALL))


@router.get(
    "/{source_id}/passages", summary="List the passages of a source's files", response_model=None, deprecated=True
)
async def list_source_passages(
    api: CallerApi,
    source_id: SourcePath,
    before: Before = None,
    after: After = None,
    limit: int = limit_query(100),
) -> JsonAnswer:
    return await routes.passage_shapes(api, source_id, page_of(before, after, limit, "desc"))


@router.get("/{source_id}/files", summary="List the files of a source", response_model=None, deprecated=True)
async def list_source_files(
    api: CallerApi,
    source_id: SourcePath,
    after: After = None,
    limit: int = limit_query(1000),
    include_content: ContentQuery = False,
    check_status_updates: StatusQuery = True,
) -> JsonAnswer:
    found = await api.folders.files(source_id, page_of(None, after, limit, "desc"))
    return await listed(await routes.file_shapes(api, found, include_content), dict)


@router.get("/{source_id}/files/{file_id}", summary="Get a file", response_model=None, deprecated=True)
async def retrieve_source_file(
    api: CallerApi, source_id: SourcePath, file_id: FilePath, include_content: ContentQuery = False
) -> JsonAnswer:
    found = await api.folders.file(file_id, source_id)
    return JsonAnswer((await routes.file_shapes(api, [found], include_content))[0])


@router.delete("/{source_id}/{file_id}", summary="Delete a file", status_code=204, response_model=None, deprecated=True)
async def delete_source_file(api: CallerApi, source_id: SourcePath, file_id: FilePath) -> Response:
    await api.folders.delete_file(file_id, source_id)
    return Response(status_code=204)
