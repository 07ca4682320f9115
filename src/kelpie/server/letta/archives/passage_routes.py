"""An agent's archival memory, and the search for passages.

A search reports its mode (`search_mode`), and the reason when it could not search by meaning (`search_note`): both keys
are Kelpie's own. Where the answer is a list, which may be empty, headers report it too.
"""

from datetime import datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.agents.agent import Include
from kelpie.core.ids import AgentId, ArchiveId
from kelpie.core.memory.passages import PassageQuery
from kelpie.core.search_hits import SearchMode
from kelpie.server.http.headers.search_headers import mode_headers
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import After, Before, limit_query, page_of
from kelpie.server.http.path_ids import AgentPath, PassagePath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import moment
from kelpie.server.letta.archives.body import MemoryBody, Tags, new_passage
from kelpie.server.letta.archives.routes import passage_shapes
from kelpie.server.letta.archives.shape import memory_shape, ranks, search_mode_shape

QUERY_CHARS_MAX = 10_000
TOP_K = 5
TOP_K_MAX = 1000
GIGABYTE = 1024**3

router = resource("/passages", "passages")
agent_router = resource("/agents/{agent_id}/archival-memory", "passages")
embedding_router = resource("/embeddings", "passages")

TagMatch = Literal["any", "all"]


@agent_router.get("", summary="List an agent's passages", response_model=None)
async def list_memory(
    api: CallerApi,
    agent_id: AgentPath,
    after: After = None,
    before: Before = None,
    limit: int | None = limit_query(100),
    search: Annotated[
        str | None, Query(max_length=QUERY_CHARS_MAX, description="Return only passages that contain this text.")
    ] = None,
    ascending: bool | None = True,
) -> JsonAnswer:
    page = page_of(before, after, limit, "desc" if ascending is False else "asc")
    return await listed(await passage_shapes(api, await api.archives.of_agent(agent_id, page, search)), dict)


@agent_router.post("", summary="Create a passage for an agent", response_model=None)
async def create_memory(api: CallerApi, agent_id: AgentPath, body: MemoryBody) -> JsonAnswer:
    archive, made = await api.archives.remember(agent_id, new_passage(body))
    return JsonAnswer(await passage_shapes(api, [made], archive))


@agent_router.get("/search", summary="Search an agent's passages", response_model=None)
async def search_memory(
    api: CallerApi,
    agent_id: AgentPath,
    query: Annotated[str, Query(max_length=QUERY_CHARS_MAX)],
    tags: Annotated[Tags | None, Query()] = None,
    tag_match_mode: TagMatch = "any",
    top_k: Annotated[int | None, Query(ge=1, le=TOP_K_MAX)] = None,
    start_datetime: datetime | None = None,
    end_datetime: datetime | None = None,
    search_mode: Annotated[
        SearchMode, Query(description="Full-text search, vector search, or both (Kelpie).")
    ] = "hybrid",
) -> JsonAnswer:
    zone = ZoneInfo((await api.agents.get(agent_id, Include())).agent.timezone)
    wanted = PassageQuery(
        text=query,
        limit=top_k or TOP_K,
        tags=tuple(tags or ()),
        match_all_tags=tag_match_mode == "all",
        since=moment("start_datetime", start_datetime, zone),
        until=moment("end_datetime", end_datetime, zone),
        mode=search_mode,
    )
    searched = await api.archives.search_of_agent(agent_id, wanted)
    found = [memory_shape(each.passage, zone, each.hit) for each in searched.found]
    return JsonAnswer({"results": found, "count": len(found), **search_mode_shape(searched)})


@agent_router.delete("/{memory_id}", summary="Delete a passage of an agent", response_model=None)
async def delete_memory(api: CallerApi, agent_id: AgentPath, memory_id: PassagePath) -> JsonAnswer:
    await api.archives.forget_of_agent(agent_id, memory_id)
    return JsonAnswer({"message": f"Memory id={memory_id} successfully deleted"})


class SearchBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    query: Annotated[str, Field(max_length=QUERY_CHARS_MAX)] | None = None
    agent_id: str | None = Field(
        None, description="Search only this agent's archive. Takes precedence over `archive_id`."
    )
    archive_id: str | None = None
    tags: Tags | None = None
    tag_match_mode: TagMatch = "any"
    limit: Annotated[int, Field(ge=1, le=100)] = 50
    start_date: datetime | None = None
    end_date: datetime | None = None
    search_mode: SearchMode = Field("hybrid", description="Full-text search, vector search, or both (Kelpie).")


@router.post("/search", summary="Search passages of an agent, an archive, or all archives", response_model=None)
async def search_passages(api: CallerApi, body: SearchBody) -> JsonAnswer:
    wanted = PassageQuery(
        text=body.query or "",
        limit=body.limit,
        tags=tuple(body.tags or ()),
        match_all_tags=body.tag_match_mode == "all",
        since=moment("start_date", body.start_date),
        until=moment("end_date", body.end_date),
        oldest_first=True,
        mode=body.search_mode,
    )
    if body.agent_id is not None:
        searched = await api.archives.search_of_agent(AgentId.parse(body.agent_id), wanted)
    else:
        archive = None if body.archive_id is None else ArchiveId.parse(body.archive_id)
        searched = await api.archives.search(archive, wanted)
    shown = await passage_shapes(api, [each.passage for each in searched.found])
    metadata = search_mode_shape(searched) if wanted.text.strip() else {}
    return JsonAnswer(
        [
            {"passage": passage, "score": each.hit.score if each.hit else 0.0, "metadata": metadata | ranks(each.hit)}
            for passage, each in zip(shown, searched.found, strict=True)
        ],
        headers=mode_headers(searched.mode, searched.lacking, searched.lost),
    )


@embedding_router.get(
    "/total_storage_size", summary="Get the size of all vectors of passages in gigabytes", response_model=None
)
async def total_storage_size(api: CallerApi) -> JsonAnswer:
    return JsonAnswer(await api.archives.vector_bytes() / GIGABYTE)
