"""Facts that an agent has extracted from its conversations, as they are now or were at a time, and their entities."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.memory.facts import Entity, FactQuery, FactSearch, FoundFact
from kelpie.core.search_hits import SearchMode
from kelpie.memory.facts import FactStatus
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.match_reasons import matched_shape
from kelpie.server.http.path_ids import AgentPath, FactPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import moment, timestamp
from kelpie.server.letta.agents.fact_settings_body import fact_settings_shape

router = resource("/agents", "facts (Kelpie)")

LIMIT_MAX = 1000
OFFSET_MAX = 1_000_000
QUERY_CHARS_MAX = 2000

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
Offset = Annotated[int, Query(ge=0, le=OFFSET_MAX)]
At = Annotated[datetime | None, Query(description="Return only facts that are true at this time.")]


class SearchFacts(BaseModel):
    """A search by words, by meaning, or by both; `at` asks for the facts that were true at that time."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[str, Field(min_length=1, max_length=QUERY_CHARS_MAX)]
    at: datetime | None = Field(None, description="Return only facts that are true at this time.")
    mode: SearchMode = "hybrid"
    limit: Annotated[int, Field(ge=1, le=100)] = 10


@router.get("/{agent_id}/facts", summary="List an agent's facts, newest first (Kelpie)", response_model=None)
async def list_facts(
    api: CallerApi,
    agent_id: AgentPath,
    entity: Annotated[
        str | None, Query(description="Return only facts about this entity, by any of its names.")
    ] = None,
    attribute: str | None = None,
    current: Annotated[bool, Query(description="Return only facts that are true now.")] = False,
    at: At = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> JsonAnswer:
    when = moment("at", at)
    if when is None and current:
        when = api.world.clock.now()
    found = await api.facts.select(agent_id, FactQuery(limit, offset, entity, attribute, when))
    return await listed(found, fact_shape)


@router.get("/{agent_id}/facts/status", summary="Get the status of fact extraction (Kelpie)", response_model=None)
async def retrieve_status(api: CallerApi, agent_id: AgentPath) -> JsonAnswer:
    return JsonAnswer(status_shape(await api.facts.status(agent_id)))


@router.post("/{agent_id}/facts/search", summary="Search an agent's facts (Kelpie)", response_model=None)
async def search_facts(api: CallerApi, agent_id: AgentPath, body: SearchFacts) -> JsonAnswer:
    wanted = FactSearch(body.query, body.limit, body.mode, moment("at", body.at))
    found = await api.facts.search(agent_id, wanted)
    results = [fact_shape(each) | {"relevance": _relevance(each)} for each in found.found]
    return JsonAnswer({"results": results, "search_mode": found.mode, "lacking": found.lacking})


@router.delete("/{agent_id}/facts/{fact_id}", summary="Delete a fact (Kelpie)", response_model=None)
async def delete_fact(api: CallerApi, agent_id: AgentPath, fact_id: FactPath) -> JsonAnswer:
    await api.facts.remove(agent_id, fact_id)
    return JsonAnswer(None)


@router.get("/{agent_id}/entities", summary="List the entities in an agent's facts (Kelpie)", response_model=None)
async def list_entities(api: CallerApi, agent_id: AgentPath, limit: Limit = 50, offset: Offset = 0) -> JsonAnswer:
    return await listed(await api.facts.entities(agent_id, limit, offset), entity_shape)


def fact_shape(found: FoundFact) -> dict[str, Any]:
    fact = found.fact
    return {
        "id": fact.id,
        "agent_id": fact.agent_id,
        "subject": fact.subject,
        "attribute": fact.attribute,
        "value": fact.value,
        "statement": fact.statement,
        "one_value": fact.exclusive,
        "confidence": fact.confidence,
        "current": found.current,
        "valid_from": timestamp(fact.valid_from),
        "valid_until": timestamp(fact.valid_until),
        "recorded_at": timestamp(fact.recorded_at),
        "last_seen_at": timestamp(fact.seen_at),
        "seen": fact.seen,
        "supersedes": fact.supersedes,
        "superseded_by": fact.superseded_by,
        "link": fact.link,
        "source_message_ids": list(fact.sources),
    }


def _relevance(found: FoundFact) -> dict[str, Any] | None:
    """Its ranks; null for a fact that is shown because it has replaced one that was found."""
    hit = found.hit
    if hit is None:
        return None
    return {
        "score": round(hit.score, 6),
        "words_rank": hit.words_rank,
        "meaning_rank": hit.meaning_rank,
        **matched_shape(hit),
    }


def entity_shape(entity: Entity) -> dict[str, Any]:
    return {
        "name": entity.name,
        "kind": entity.kind,
        "aliases": list(entity.aliases),
        "first_seen_at": timestamp(entity.first_seen_at),
        "last_seen_at": timestamp(entity.seen_at),
    }


def status_shape(status: FactStatus) -> dict[str, Any]:
    state = status.state
    shape: dict[str, Any] = {"settings": fact_settings_shape(status.settings), "facts": status.count}
    shape |= {"active": state is not None}
    if state is not None:
        shape |= {
            "extractions": state.extractions,
            "skipped": state.skipped,
            "failures": state.failures,
            "last_at": timestamp(state.last_at),
            "last_error": state.last_error,
            "not_before": timestamp(state.not_before) if state.not_before else None,
        }
    return shape
