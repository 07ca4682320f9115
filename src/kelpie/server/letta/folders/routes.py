"""Folders and files over HTTP. `source_routes` has the same under the older name."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from kelpie.core.files.file_names import NAME_CHARS_MAX
from kelpie.core.files.files import DuplicateHandling, File
from kelpie.core.files.folders import Folder
from kelpie.core.ids import FolderId
from kelpie.core.paging import Page
from kelpie.files.folders import CONTENT_CHARS_MAX
from kelpie.server.http.json_answer import JsonAnswer, built, listed
from kelpie.server.http.paging import Page50, Page50Ascending, Page100, Page1000
from kelpie.server.http.path_ids import FilePath, FolderPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.folders import shape as shapes
from kelpie.server.letta.folders.body import CreateFolder, UpdateFolder, folder_changes, new_folder
from kelpie.server.letta.folders.uploads import FORM, uploaded

router = resource("/folders", "folders")

NameQuery = Annotated[str | None, Query(max_length=NAME_CHARS_MAX, description="Return only the folder of this name.")]
ContentQuery = Annotated[bool, Query(description="Return the text of the file, too.")]
HandlingQuery = Annotated[
    DuplicateHandling, Query(description="What to do if the folder has a file that was uploaded under this name.")
]
UploadNameQuery = Annotated[str | None, Query(description="A name for the file instead of its own.")]
DetailQuery = Annotated[bool, Query(description="Return the files of each folder, too.")]


async def folder_shapes(api: CallerApi, folders: Sequence[Folder], *, source: bool = False) -> list[dict[str, Any]]:
    """Folders in Letta's JSON, or sources, as they were called before."""
    default = await api.folders.default_embedding()
    known = {info.handle: info for info in await api.models.known_embeddings()} if folders else {}
    shape = shapes.source_shape if source else shapes.folder_shape
    return await built(folders, lambda folder: shape(folder, known, default))


async def file_shapes(api: CallerApi, files: Sequence[File], with_content: bool) -> list[dict[str, Any]]:
    """Files in Letta's JSON. Of very long contents together only the first are returned; the others are null."""
    found: list[dict[str, Any]] = []
    left = CONTENT_CHARS_MAX
    for file in files:
        content = await api.folders.content(file.id) if with_content and left > 0 else None
        left -= len(content or "")
        found.append(shapes.file_shape(file, content))
    return found


async def passage_shapes(api: CallerApi, folder_id: FolderId, page: Page) -> JsonAnswer:
    """The passages of a folder's files in Letta's JSON. Raises NotFound."""
    folder = await api.folders.get(folder_id)
    found = await api.folders.passages(folder_id, page)
    default = await api.folders.default_embedding()
    known = {info.handle: info for info in await api.models.known_embeddings()}
    vectors = await api.folders.vectors(passage.id for passage, _ in found)
    return await listed(
        found, lambda each: shapes.passage_shape(*each, folder, known, default, vectors.get(each[0].id))
    )


async def stats(api: CallerApi, *, detailed: bool) -> dict[str, Any]:
    """The sizes of all folders."""
    sizes = await api.folders.sizes()
    found: list[dict[str, Any]] = []
    for folder_id, name, count, size in sizes if detailed else ():
        page = Page(limit=shapes.STATS_FILES_MAX, descending=False)
        files = [
            {"file_id": each.id, "file_name": each.name, "file_size": each.size}
            for each in await api.folders.files(FolderId(folder_id), page)
        ]
        found.append(
            {"source_id": folder_id, "source_name": name, "file_count": count, "total_size": size, "files": files}
        )
    totals = {"total_files": sum(each[2] for each in sizes), "total_size": sum(each[3] for each in sizes)}
    return {"total_sources": len(sizes), **totals, "sources": found}


@router.get("/count", summary="Count folders", response_model=None)
async def count_folders(api: CallerApi) -> JsonAnswer:
    return JsonAnswer(await api.folders.count())


@router.get("/metadata", summary="Get the sizes of all folders", response_model=None)
async def folder_metadata(api: CallerApi, include_detailed_per_source_metadata: DetailQuery = False) -> JsonAnswer:
    return JsonAnswer(await stats(api, detailed=include_detailed_per_source_metadata))


@router.get("/name/{folder_name}", summary="Get the id of a folder by its name", response_model=None, deprecated=True)
async def folder_by_name(api: CallerApi, folder_name: str) -> JsonAnswer:
    return JsonAnswer((await api.folders.by_name(folder_name)).id)


@router.get("/", summary="List folders", response_model=None)
async def list_folders(api: CallerApi, page: Page50Ascending, name: NameQuery = None) -> JsonAnswer:
    return await listed(await folder_shapes(api, await api.folders.page(page, name)), dict)


@router.post("/", summary="Create a folder", response_model=None)
async def create_folder(api: CallerApi, body: CreateFolder) -> JsonAnswer:
    return JsonAnswer((await folder_shapes(api, [await api.folders.create(new_folder(body))]))[0])


@router.get("/{folder_id}", summary="Get a folder", response_model=None)
async def retrieve_folder(api: CallerApi, folder_id: FolderPath) -> JsonAnswer:
    return JsonAnswer((await folder_shapes(api, [await api.folders.get(folder_id)]))[0])


@router.patch("/{folder_id}", summary="Update a folder", response_model=None)
async def update_folder(api: CallerApi, folder_id: FolderPath, body: UpdateFolder) -> JsonAnswer:
    after = await api.folders.update(folder_id, folder_changes(body))
    return JsonAnswer((await folder_shapes(api, [after]))[0])


@router.delete("/{folder_id}", summary="Delete a folder and its files", response_model=None)
async def delete_folder(api: CallerApi, folder_id: FolderPath) -> JsonAnswer:
    await api.folders.delete(folder_id)
    return JsonAnswer(None)


@router.post("/{folder_id}/upload", summary="Upload a file", response_model=None, openapi_extra={"requestBody": FORM})
async def upload_file(
    api: CallerApi,
    request: Request,
    folder_id: FolderPath,
    duplicate_handling: HandlingQuery = DuplicateHandling.suffix,
    name: UploadNameQuery = None,
) -> JsonAnswer:
    return await uploaded(api, request, folder_id, duplicate_handling, name)


@router.get("/{folder_id}/agents", summary="List the agents that have a folder", response_model=None)
async def list_folder_agents(api: CallerApi, folder_id: FolderPath, page: Page50) -> JsonAnswer:
    return JsonAnswer(await api.folders.agents_of(folder_id, page))


@router.get("/{folder_id}/passages", summary="List the passages of a folder's files", response_model=None)
async def list_folder_passages(api: CallerApi, folder_id: FolderPath, page: Page100) -> JsonAnswer:
    return await passage_shapes(api, folder_id, page)


@router.get("/{folder_id}/files", summary="List the files of a folder", response_model=None)
async def list_folder_files(
    api: CallerApi, folder_id: FolderPath, page: Page1000, include_content: ContentQuery = False
) -> JsonAnswer:
    return await listed(await file_shapes(api, await api.folders.files(folder_id, page), include_content), dict)


@router.get("/{folder_id}/files/{file_id}", summary="Get a file", response_model=None)
async def retrieve_file(
    api: CallerApi, folder_id: FolderPath, file_id: FilePath, include_content: ContentQuery = False
) -> JsonAnswer:
    found = await api.folders.file(file_id, folder_id)
    return JsonAnswer((await file_shapes(api, [found], include_content))[0])


@router.delete("/{folder_id}/{file_id}", summary="Delete a file", status_code=204, response_model=None)
async def delete_file(api: CallerApi, folder_id: FolderPath, file_id: FilePath) -> Response:
    await api.folders.delete_file(file_id, folder_id)
    return Response(status_code=204)
