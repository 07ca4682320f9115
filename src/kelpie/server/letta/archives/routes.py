"""The archives resource, the passages in an archive, and the archive of an agent."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from kelpie.core.ids import AgentId
from kelpie.core.memory.passages import Archive, ArchiveQuery, Passage
from kelpie.memory.archive_embedding import Progress
from kelpie.server.http.json_answer import JsonAnswer, built, listed
from kelpie.server.http.paging import Page50
from kelpie.server.http.path_ids import AgentPath, ArchivePath, PassagePath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.agents.routes import Included, shapes
from kelpie.server.letta.archives.body import (
    NAME_CHARS_MAX,
    CreateArchive,
    PassageBatch,
    PassageBody,
    UpdateArchive,
    archive_changes,
    new_archive,
    new_passage,
    new_passages,
)
from kelpie.server.letta.archives.shape import Embeddings, archive_shape, passage_shape

router = resource("/archives", "archives")
agent_router = resource("/agents/{agent_id}/archives", "archives")


async def passage_shapes(
    api: CallerApi, passages: Sequence[Passage], archive: Archive | None = None
) -> list[dict[str, Any]]:
    """Passages in Letta's JSON, each with the embedding model of its archive.

    A passage that was just stored comes with its archive: a read that fails afterwards would report a failure although
    the passage is stored.
    """
    wanted = list(dict.fromkeys(passage.archive_id for passage in passages))
    archives = {archive.id: archive} if archive else await api.archives.get_many(wanted)
    known = await _embeddings(api, list(archives.values()))
    vectors = {} if archive else await api.archives.vectors([passage.id for passage in passages])

    def shape(passage: Passage) -> dict[str, Any]:
        vector = passage.vector or vectors.get(passage.id)
        return passage_shape(passage, archives.get(passage.archive_id), known, vector)

    return await built(passages, shape)


async def _archive_shapes(api: CallerApi, archives: Sequence[Archive]) -> list[dict[str, Any]]:
    known = await _embeddings(api, archives)
    return await built(archives, lambda archive: archive_shape(archive, known))


async def _with_progress(api: CallerApi, archive: Archive, progress: Progress) -> dict[str, Any]:
    """An archive and the progress of its embedding: counting vectors is too much for every archive of a list."""
    return (await _archive_shapes(api, [archive]))[0] | {"kelpie_embedding": asdict(progress)}


async def _embeddings(api: CallerApi, archives: Sequence[Archive]) -> Embeddings:
    if not any(archive.embedding for archive in archives):
        return {}
    return {info.handle: info for info in await api.models.known_embeddings()}


@router.post("/", summary="Create an archive", response_model=None)
async def create_archive(api: CallerApi, body: CreateArchive) -> JsonAnswer:
    return JsonAnswer(await _with_progress(api, *await api.archives.create(new_archive(body))))


@router.get("/", summary="List archives", response_model=None)
async def list_archives(
    api: CallerApi,
    page: Page50,
    name: Annotated[str | None, Query(max_length=NAME_CHARS_MAX)] = None,
    agent_id: Annotated[str | None, Query(description="Return only the archive of this agent.")] = None,
) -> JsonAnswer:
    query = ArchiveQuery(page, name, None if agent_id is None else AgentId.parse(agent_id))
    return await listed(await _archive_shapes(api, await api.archives.page(query)), dict)


@router.get("/{archive_id}", summary="Get an archive", response_model=None)
async def retrieve_archive(api: CallerApi, archive_id: ArchivePath) -> JsonAnswer:
    return JsonAnswer(await _with_progress(api, *await api.archives.get(archive_id)))


@router.patch("/{archive_id}", summary="Update an archive's name or description", response_model=None)
async def update_archive(api: CallerApi, archive_id: ArchivePath, body: UpdateArchive) -> JsonAnswer:
    return JsonAnswer(await _with_progress(api, *await api.archives.update(archive_id, archive_changes(body))))


@router.delete("/{archive_id}", summary="Delete an archive and its passages", status_code=204, response_model=None)
async def delete_archive(api: CallerApi, archive_id: ArchivePath) -> Response:
    await api.archives.delete(archive_id)
    return Response(status_code=204)


@router.get("/{archive_id}/agents", summary="List the agents that use an archive", response_model=None)
async def list_archive_agents(api: CallerApi, archive_id: ArchivePath, page: Page50, include: Included) -> JsonAnswer:
    users = await api.archives.agents_of(archive_id, page)
    return JsonAnswer(await shapes(api, await api.agents.get_many(users, include), include))


@router.post("/{archive_id}/passages", summary="Create a passage", response_model=None)
async def create_passage(api: CallerApi, archive_id: ArchivePath, body: PassageBody) -> JsonAnswer:
    archive, made = await api.archives.store(archive_id, [new_passage(body)])
    return JsonAnswer((await passage_shapes(api, made, archive))[0])


@router.post("/{archive_id}/passages/batch", summary="Create passages, all or none", response_model=None)
async def create_passages(api: CallerApi, archive_id: ArchivePath, body: PassageBatch) -> JsonAnswer:
    archive, made = await api.archives.store(archive_id, new_passages(body), "passages")
    return await listed(await passage_shapes(api, made, archive), dict)


@router.delete("/{archive_id}/passages/{passage_id}", summary="Delete a passage", status_code=204, response_model=None)
async def delete_passage(api: CallerApi, archive_id: ArchivePath, passage_id: PassagePath) -> Response:
    await api.archives.forget(archive_id, passage_id)
    return Response(status_code=204)


@agent_router.patch("/attach/{archive_id}", summary="Attach an archive to an agent", response_model=None)
async def attach_archive(api: CallerApi, agent_id: AgentPath, archive_id: ArchivePath) -> JsonAnswer:
    await api.archives.attach(agent_id, archive_id)
    return JsonAnswer(None)


@agent_router.patch("/detach/{archive_id}", summary="Detach an archive from an agent", response_model=None)
async def detach_archive(api: CallerApi, agent_id: AgentPath, archive_id: ArchivePath) -> JsonAnswer:
    await api.archives.detach(agent_id, archive_id)
    return JsonAnswer(None)
