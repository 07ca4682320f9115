"""An agent's working memory over HTTP: values under keys, each with a version and, on request, an expiry."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.errors import InvalidInput
from kelpie.core.memory.working_memory import (
    KEEP,
    Append,
    Change,
    EntryQuery,
    Increment,
    Merge,
    Order,
    WorkingMemoryEntry,
)
from kelpie.core.paging import PAGE_BYTES_MAX, Page
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.paging import Order as Direction
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import moment, timestamp

LIMIT = 100
LIMIT_MAX = 1000
VERSION_MAX = 2**62

router = resource("/agents/{agent_id}/working-memory", "working memory (Kelpie)")

IfVersion = Annotated[
    int | None,
    Field(
        ge=0,
        le=VERSION_MAX,
        description="Write only if the entry has this version, or, with 0, if it does not exist. Otherwise 409.",
    ),
]
Ttl = Annotated[float | None, Field(description="Seconds until the entry expires; null for no expiry.")]
Moment = Annotated[datetime | None, Query(description="ISO 8601 time, exclusive; UTC if it has no time zone.")]
Cursor = Annotated[str | None, Query(max_length=1000, description="Return only entries before or after this key.")]


class PutEntry(BaseModel):
    """The new content of an entry."""

    model_config = ConfigDict(extra="forbid")

    value: Any = Field(description="Any JSON value.")
    ttl_seconds: Ttl = None
    if_version: IfVersion = None


class PatchEntry(BaseModel):
    """One change of the value, based on its current content; or only a new expiry."""

    model_config = ConfigDict(extra="forbid")

    increment: int | float | None = Field(None, description="Added to the stored number; a missing entry counts as 0.")
    append: Any = Field(None, description="Appended to the stored list; a missing entry counts as an empty list.")
    merge: dict[str, Any] | None = Field(
        None, description="Merged into the stored object (RFC 7396); null removes a member."
    )
    ttl_seconds: Ttl = None
    if_version: IfVersion = None


def _change(body: PatchEntry) -> Change | None:
    given = [name for name in ("increment", "append", "merge") if name in body.model_fields_set]
    if len(given) > 1:
        raise InvalidInput(given[1], f"cannot be combined with '{given[0]}'; send one change at a time")
    if not given:
        if "ttl_seconds" not in body.model_fields_set:
            raise InvalidInput("body", "has no change; send 'increment', 'append', 'merge' or 'ttl_seconds'")
        return None
    if given == ["append"]:
        return Append(body.append)
    if body.increment is not None:
        return Increment(body.increment)
    if body.merge is not None:
        return Merge(body.merge)
    raise InvalidInput(given[0], "must not be null; omit it")


def entry_shape(entry: WorkingMemoryEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "value": entry.value,
        "version": entry.version,
        "created_at": timestamp(entry.created_at),
        "updated_at": timestamp(entry.updated_at),
        "expires_at": timestamp(entry.expires_at),
    }


@router.get("", summary="List an agent's working memory (Kelpie)", response_model=None)
async def list_entries(
    api: CallerApi,
    agent_id: AgentPath,
    prefix: Annotated[str, Query(max_length=256, description="Return only keys with this prefix.")] = "",
    updated_after: Moment = None,
    updated_before: Moment = None,
    created_after: Moment = None,
    created_before: Moment = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT,
    after: Cursor = None,
    before: Cursor = None,
    order: Direction = "asc",
    order_by: Order = "key",
) -> JsonAnswer:
    query = EntryQuery(
        Page(limit, after, before, order == "desc", order_by, PAGE_BYTES_MAX),
        prefix,
        updated_after=moment("updated_after", updated_after),
        updated_before=moment("updated_before", updated_before),
        created_after=moment("created_after", created_after),
        created_before=moment("created_before", created_before),
    )
    return await listed(await api.working_memory.page(agent_id, query), entry_shape)


@router.delete("", summary="Clear an agent's working memory (Kelpie)", response_model=None)
async def clear(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    return JsonAnswer({"deleted": await api.working_memory.clear(agent_id)})


# A key may hold a slash, hence `:path`.
@router.get("/{entry_key:path}", summary="Get an entry of working memory (Kelpie)", response_model=None)
async def retrieve(api: CallerApi, agent_id: AgentPath, entry_key: str) -> JsonAnswer:
    return JsonAnswer(entry_shape(await api.working_memory.get(agent_id, entry_key)))


@router.put("/{entry_key:path}", summary="Set an entry of working memory (Kelpie)", response_model=None)
async def put(api: CallerApi, agent_id: AgentPath, entry_key: str, body: PutEntry) -> JsonAnswer:
    entry = await api.working_memory.put(agent_id, entry_key, body.value, body.ttl_seconds, body.if_version)
    return JsonAnswer(entry_shape(entry))


@router.patch("/{entry_key:path}", summary="Update an entry of working memory atomically (Kelpie)", response_model=None)
async def update(api: CallerApi, agent_id: AgentPath, entry_key: str, body: PatchEntry) -> JsonAnswer:
    ttl = body.ttl_seconds if "ttl_seconds" in body.model_fields_set else KEEP
    return JsonAnswer(
        entry_shape(await api.working_memory.update(agent_id, entry_key, _change(body), ttl, body.if_version))
    )


@router.delete("/{entry_key:path}", summary="Delete an entry of working memory (Kelpie)", response_model=None)
async def delete(
    api: CallerApi,
    agent_id: AgentPath,
    entry_key: str,
    if_version: Annotated[int | None, Query(ge=0, le=VERSION_MAX)] = None,
) -> JsonAnswer:
    return JsonAnswer(entry_shape(await api.working_memory.delete(agent_id, entry_key, if_version)))
